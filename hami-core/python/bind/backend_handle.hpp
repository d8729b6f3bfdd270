// hami.types.BackendHandle: a backend as a value in Python. Loan: lends a backend to Python code for a limited time.
#pragma once

#include <memory>
#include <string>

#include "backend/api.hpp"
#include "core_objects.hpp"

namespace hami {
class PipeState;
struct PipeContext;
}  // namespace hami

namespace hami::bind {

// A lent backend (an item of `self.children` or a dependency), or an instance of a pipe by name. Python code may keep it for longer
// than the backend exists, pass it on in requests, and use it on any thread.
class BackendHandle final : public Object {
 public:
  // Lent; `ended` is the error of each use after the loan has ended.
  BackendHandle(std::weak_ptr<Backend> lent, std::string label, Error ended)
      : Object(Kind::kBackend), lent_(std::move(lent)), label_(std::move(label)), ended_(std::move(ended)) {}
  // An instance, which may be registered later.
  BackendHandle(const std::shared_ptr<PipeContext>& context, const std::string& name);

  // The backend, which is in use as long as the pointer exists. Throws once the loan has ended. The calls of an instance throw
  // once its pipe has ended.
  BackendPtr use() const {
    if (proxy_) return proxy_;
    if (BackendPtr backend = lent_.lock()) return backend;
    throw Error(ended_);
  }
  bool is_instance() const noexcept { return proxy_ != nullptr; }
  // The pipe of an instance. Error(kPipeClosed) if it is gone.
  std::shared_ptr<PipeState> pipe() const;
  // The name as written in the expression, or that of the instance.
  const std::string& label() const noexcept { return label_; }

 private:
  const BackendPtr proxy_;                    // null: lent
  const std::weak_ptr<PipeContext> context_;  // of an instance
  const std::weak_ptr<Backend> lent_;
  const std::string label_;
  const Error ended_;
};

// Lends a backend to Python code. The destructor ends the loan: it waits, without the GIL, until no thread uses the backend.
class Loan {
 public:
  // `ended` is the error of each later use. Any thread may call the backend through the loan: if the core promised it one call
  // at a time, so does the loan.
  Loan(BackendPtr backend, Error ended);
  ~Loan() { end(kNever); }
  Loan(Loan&&) = default;
  Loan& operator=(Loan&&) = delete;

  Ref<BackendHandle> handle() const;
  // Ends the loan early. False: at `until`, a thread still used the backend.
  bool end(Nanoseconds until) noexcept;

 private:
  struct Users;
  std::shared_ptr<Users> users_;
  BackendPtr backend_;
  BackendPtr lent_;  // of backend_; shares the ownership of nothing but the loan; null once it has ended
  Error ended_;
};

}  // namespace hami::bind
