// Python's global lock as the core sees it: taken only with no core lock held, let go for every wait.
#pragma once

#include <pybind11/pybind11.h>

namespace hami::bind {

namespace py = pybind11;

// Takes the lock, whatever the thread has now. A thread that comes while the interpreter ends waits for ever instead.
class HoldGil {
 public:
  HoldGil() noexcept;
  ~HoldGil();
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Lets a reference go from any thread: at once if it has the lock, else when the next thread has it.
void drop(PyObject* object) noexcept;
// Lets go what other threads could not. With the lock held.
void drain_dropped() noexcept;

// Tells the core how to wait and how to notice Ctrl-C.
void install_hooks();

// A counted reference that may die on any thread.
class PyRef {
 public:
  PyRef() noexcept = default;
  explicit PyRef(py::object object) noexcept : object_(object.release().ptr()) {}
  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~PyRef() {
    if (object_) drop(object_);
  }
  py::handle get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace hami::bind
