// Loan and hami.Child: backends that Python code may use for a limited time.
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "base/clock.hpp"
#include "gil.hpp"
#include "value/error.hpp"

namespace hami::bind {

// hami.Child: an item of `self.children`, a dependency, or the dependency of one call of forward_with_dep. Python code may keep it for
// longer than the backend exists.
class Child {
 public:
  Child(std::weak_ptr<Backend> backend, Error ended) : backend_(std::move(backend)), ended_(std::move(ended)) {}
  // The backend, which is in use as long as the pointer exists. Throws once the loan has ended.
  BackendPtr use() const {
    if (BackendPtr backend = backend_.lock()) return backend;
    throw Error(ended_);
  }

 private:
  std::weak_ptr<Backend> backend_;
  Error ended_;
};

// Lends a backend to Python code. The destructor ends the loan: it waits, without the GIL, until no thread uses the backend.
class Loan {
 public:
  // `ended` is the error of each later use.
  Loan(BackendPtr backend, Error ended);
  ~Loan() { end(kNever); }
  Loan(Loan&&) = default;
  Loan& operator=(Loan&&) = delete;

  Child child() const { return {lent_, ended_}; }
  // Ends the loan early. False: at `until`, a thread still used the backend.
  bool end(Nanoseconds until) noexcept;

 private:
  struct Users;
  std::shared_ptr<Users> users_;
  BackendPtr lent_;  // shares the ownership of nothing but the loan; null once it has ended
  Error ended_;
};

void register_child(py::module_& module);

}  // namespace hami::bind
