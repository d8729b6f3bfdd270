// Python's global lock as the core sees it: taken only with no core lock held, let go for every wait.
#pragma once

#include <pybind11/pybind11.h>

#include "interpreter_end.h"

namespace hami::bind {

namespace py = pybind11;

// Takes the lock, whatever the thread has now. A thread that comes while the interpreter ends waits for ever instead.
class HoldGil {
 public:
  HoldGil() noexcept;
  // For what a batch begins with: it takes over what was taken ahead for it, and lets that go at its end.
  struct ForBatch {};
  explicit HoldGil(ForBatch) noexcept;
  ~HoldGil();
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Lets the lock go for the time of its scope.
class ReleaseGil {
 public:
  ReleaseGil() noexcept : state_(PyEval_SaveThread()) {}
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

// Keeps threads apart in a free-threaded Python. Elsewhere the global lock does, and this is nothing. While it is held no code
// of users runs, so no object of Python dies.
class FreeThreadedMutex {
 public:
#ifdef Py_GIL_DISABLED
  void lock() noexcept { PyMutex_Lock(&mutex_); }
  void unlock() noexcept { PyMutex_Unlock(&mutex_); }

 private:
  PyMutex mutex_{};
#else
  void lock() noexcept {}
  void unlock() noexcept {}
#endif
};

// callable(arguments…), for calls that run code of users.
template <class... Arguments>
py::object call_python(py::handle callable, const Arguments&... arguments) {
  PyObject* const given[] = {arguments.ptr()..., nullptr};
  PyObject* result = hami_call(callable.ptr(), given, sizeof...(arguments));
  if (!result) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

// Lets a reference go from any thread: at once if it has the lock, else when the next thread has it.
void drop(PyObject* object) noexcept;
// Lets go what other threads could not. With the lock held.
void drain_dropped() noexcept;

// On the main thread an exception may be that of a signal's handler, which Python runs in the middle of whatever it does: it is
// raised when the thread is back in the program. False: on other threads it is none, or it cannot be.
bool raise_later(const py::error_already_set& raised) noexcept;

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
