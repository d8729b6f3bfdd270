// The GIL as the core uses it: never acquired while a core lock is held, released during every wait.
#pragma once

#include <pybind11/pybind11.h>

#include "base/api.hpp"
#include "greenlets.hpp"
#include "interpreter_end.h"

namespace hami::bind {

namespace py = pybind11;

// Whether the calling thread holds the GIL.
bool has_gil() noexcept;

// Whether the interpreter is finalizing: only the main thread may still use Python.
bool finalizing() noexcept;

// Acquires the GIL; the calling thread may already hold it. Halts the thread if the interpreter is finalizing.
class HoldGil {
 public:
  HoldGil() noexcept;
  // For `forward` of a batch: consumes the GIL that was pre-acquired for this batch, if any, and releases it at the
  // end.
  struct ForBatch {};
  explicit HoldGil(ForBatch) noexcept;
  ~HoldGil();
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Releases the GIL for its scope.
class ReleaseGil {
 public:
  ReleaseGil() noexcept : state_(PyEval_SaveThread()) {}
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

// A mutex in free-threaded Python. In other builds it does nothing, because the GIL serializes the threads. User code
// must not run while it is held, so no Python object may be destroyed under it.
class HAMI_CAPABILITY("mutex") FreeThreadedMutex {
 public:
#ifdef Py_GIL_DISABLED
  void lock() noexcept HAMI_ACQUIRE() { PyMutex_Lock(&mutex_); }
  void unlock() noexcept HAMI_RELEASE() { PyMutex_Unlock(&mutex_); }

 private:
  PyMutex mutex_{};
#else
  void lock() noexcept HAMI_ACQUIRE() { HAMI_ASSERT(has_gil()); }
  void unlock() noexcept HAMI_RELEASE() { HAMI_ASSERT(has_gil()); }
#endif
};

class HAMI_SCOPED_CAPABILITY FreeThreadedLock {
 public:
  explicit FreeThreadedLock(FreeThreadedMutex& mutex) noexcept HAMI_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~FreeThreadedLock() HAMI_RELEASE() { mutex_.unlock(); }
  FreeThreadedLock(const FreeThreadedLock&) = delete;
  FreeThreadedLock& operator=(const FreeThreadedLock&) = delete;

 private:
  FreeThreadedMutex& mutex_;
};

// Throws the exception that Python has set: as py::error_already_set, or as std::bad_alloc if CPython had no memory for an
// exception object. pybind11 would create the object now, and CPython before 3.12 aborts if it cannot.
[[noreturn]] void throw_python_error();

// Called once for a class whose objects are shared with the core. Without memory for a Python object, pybind11 would free the
// object behind it, which others hold.
template <class Holder>
void keep_shared_objects(py::handle cls) {
  py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(cls.ptr()))->dealloc =
      [](py::detail::value_and_holder& object) {
    const py::error_scope saved;
    if (object.holder_constructed()) object.holder<Holder>().~Holder();
    object.set_holder_constructed(false);
    object.value_ptr() = nullptr;
  };
}

// The object of C++ in an object of a class of ours with at most one base, or null before its __init__. A cast of pybind11 looks
// the type up under a mutex that all threads share in free-threaded Python.
template <class T>
T* object_in(PyObject* object) noexcept {
  const auto* instance = reinterpret_cast<py::detail::instance*>(object);
  return instance->simple_layout ? static_cast<T*>(instance->simple_value_holder[0]) : nullptr;
}

// callable(arguments…). Use it for calls that run user code.
template <class... Arguments>
py::object call_python(py::handle callable, const Arguments&... arguments) {
  const ProgramCodeScope scope;
  PyObject* const given[] = {arguments.ptr()..., nullptr};
  PyObject* result = hami_call(callable.ptr(), given, sizeof...(arguments));
  if (!result) throw_python_error();
  return py::reinterpret_steal<py::object>(result);
}

// Py_DECREF from any thread. Without the GIL, the reference is queued for the next thread that calls
// run_pending_decrefs.
void decref_from_any_thread(PyObject* object) noexcept;
// Requires the GIL.
void run_pending_decrefs() noexcept;

// Python runs signal handlers on the main thread, in the middle of any call, so an exception caught there may come from
// a handler. Schedules `raised` to be raised again once the main thread is back in the program. Returns false on other
// threads, or if the exception cannot be scheduled.
bool raise_later(const py::error_already_set& raised) noexcept;

// Whether Python runs signal handlers on the calling thread: only on the main thread.
bool runs_signal_handlers() noexcept;

// Registers how the core acquires and releases the GIL, and how it notices Ctrl-C.
void install_hooks();

// An owned reference that may be destroyed on any thread, with or without the GIL.
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
    if (object_) decref_from_any_thread(object_);
  }
  py::handle get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace hami::bind
