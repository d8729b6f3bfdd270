// Loan: waits for the users of a lent backend. Child: its methods in Python.
#include "child.hpp"

#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "base/mutex.hpp"
#include "greenlets.hpp"
#include "request_view.hpp"
#include "sync/blocking.hpp"

namespace hami::bind {

struct Loan::Users {
  Mutex mutex;
  CondVar changed;
  bool gone HAMI_GUARDED_BY(mutex) = false;
};

// The deleter of `lent_` runs when the loan has ended and the last thread that uses the backend is done.
Loan::Loan(BackendPtr backend, Error ended) : users_(std::make_shared<Users>()), ended_(std::move(ended)) {
  lent_ = BackendPtr(backend.get(), [users = users_](Backend*) {
    const MutexLock lock(users->mutex);
    users->gone = true;
    users->changed.notify_all();
  });
}

bool Loan::end(Nanoseconds until) noexcept {
  if (!users_) return true;  // moved away
  lent_.reset();
  const auto gone = [&] {
    users_->mutex.assert_held();
    return users_->gone;
  };
  {
    const MutexLock lock(users_->mutex);
    if (gone()) return true;
  }
  const BlockingScope blocking;
  MutexLock lock(users_->mutex);
  if (until != kNever) return users_->changed.wait_until(lock, until, gone);
  users_->changed.wait(lock, gone);
  return true;
}

void register_child(py::module_& module) {
  py::class_<Child>(module, "Child", "A backend inside the brackets of a Python backend.")
      .def("forward",
           [](const Child& self, const py::list& batch) {
    check_greenlet();
    const BackendPtr backend = self.use();
    const Borrowed borrowed(batch);
    const ReleaseGil release;
    backend->forward(Batch(borrowed.requests()));
  }, py::arg("batch"), "Run a batch of requests and set their `result`. Raises the error of the batch.")
      .def_property_readonly("min", [](const Child& self) { return self.use()->min(); }, "The minimum batch size.")
      .def_property_readonly("max", [](const Child& self) -> std::optional<std::size_t> {
    const Range range = self.use()->range();
    return range.declared() ? std::optional(range.max) : std::nullopt;
  }, "The maximum batch size; None if the backend declares none.");
}

}  // namespace hami::bind
