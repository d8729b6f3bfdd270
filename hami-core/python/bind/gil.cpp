// The global lock: hooks for the core's waits, and references dropped by threads that do not hold it.
#include "gil.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "sync/blocking.hpp"
#include "value/error.hpp"
#include "base/fork.hpp"
#include "errors.hpp"
#include "completion_batch.hpp"

namespace hami::bind {
namespace {

bool finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// The main thread ends the interpreter, and may still use it while it does.
bool on_main_thread() noexcept { return syscall(SYS_gettid) == getpid(); }

void take_back(PyThreadState* state) noexcept {
  if (finalizing() && !on_main_thread()) hami_stay_here();
  hami_restore_thread(state);
}

// A thread of the core keeps one state from its first use of Python to its end: what Python holds for each thread, such
// as threading.local, lasts from one forward to the next.
class ThreadState {
 public:
  void keep() {
    if (state_ || PyGILState_GetThisThreadState()) return;
    first_ = hami_ensure_gil();
    state_ = PyEval_SaveThread();
  }
  ~ThreadState() {
    if (!state_ || finalizing() || !Py_IsInitialized()) return;
    take_back(state_);
    PyGILState_Release(first_);
  }

 private:
  PyThreadState* state_ = nullptr;
  PyGILState_STATE first_{};
};
thread_local ThreadState thread_state;

PyGILState_STATE take() noexcept {
  if (finalizing() && !on_main_thread()) hami_stay_here();
  thread_state.keep();
  return hami_ensure_gil();
}

// Taken ahead, and no batch has taken it over; the next HoldGil that is for one does if it begins now.
thread_local std::optional<PyGILState_STATE> ahead;
thread_local bool batch_begins = false;

void preacquire() noexcept {
  if (!ahead) ahead = take();
}

void begin_batch() noexcept { batch_begins = true; }

void let_go() noexcept {
  batch_begins = false;
  if (ahead) PyGILState_Release(*std::exchange(ahead, std::nullopt));
}

std::mutex& dropped_mutex = *new std::mutex;  // guards dropped
std::vector<PyObject*>& dropped = *new std::vector<PyObject*>;

int drain_pending(void*) {
  drain_dropped();
  return 0;
}

int raise_held(void* exception) {
  const py::object held = py::reinterpret_steal<py::object>(static_cast<PyObject*>(exception));
  PyErr_SetObject(py::type::handle_of(held).ptr(), held.ptr());
  return -1;
}

// PyGILState_Check says yes to every thread once the program has made a sub-interpreter.
bool has_gil() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyThreadState* const current = PyThreadState_GetUnchecked();
#else
  PyThreadState* const current = _PyThreadState_UncheckedGet();  // before 3.12 of whichever thread has the lock
#endif
  return current && current == PyGILState_GetThisThreadState();
}

void* leave() noexcept { return has_gil() ? PyEval_SaveThread() : nullptr; }

void enter(void* token) noexcept {
  if (token) take_back(static_cast<PyThreadState*>(token));
}

// Of a native plugin. An exception that it leaves set would be raised by whatever runs next: the answer would be lost.
class HeldForPlugin {
 public:
  explicit HeldForPlugin(const std::string& who) noexcept : gil_(HoldGil::ForBatch{}), who_(who) {}
  ~HeldForPlugin() {
    if (!PyErr_Occurred()) return;
    py::error_already_set left;
    left.discard_as_unraisable(("hami: the native backend " + who_ + ", which left it set").c_str());
  }

 private:
  const HoldGil gil_;
  const py::error_scope before_;
  const std::string& who_;
};

void* hold(const std::string& who) { return new HeldForPlugin(who); }

void release_held(void* token) noexcept { delete static_cast<HeldForPlugin*>(token); }

// Python does so on the main thread only; a fork may make another one that.
bool runs_signal_handlers() noexcept {
  thread_local unsigned asked = ~0u;
  thread_local bool known = false;
  if (const unsigned generation = fork_generation(); asked != generation) {
    asked = generation;
    known = on_main_thread();
  }
  return known;
}

void check_signals() {
  const HoldGil gil;
  if (PyErr_CheckSignals() == 0) return;
  py::error_already_set raised;
  throw from_signal_handler(raised);
}

}  // namespace

HoldGil::HoldGil() noexcept : state_(take()) {}

HoldGil::HoldGil(ForBatch) noexcept
    : state_(std::exchange(batch_begins, false) ? *std::exchange(ahead, std::nullopt) : take()) {}

HoldGil::~HoldGil() { PyGILState_Release(state_); }

ReleaseGil::~ReleaseGil() { take_back(state_); }

void drop(PyObject* object) noexcept {
  if (has_gil()) return hami_drop(object);
  bool first;
  {
    std::lock_guard lock(dropped_mutex);
    first = dropped.empty();
    dropped.push_back(object);
  }
  // The main thread takes them if nobody else comes by.
  if (first && !finalizing()) Py_AddPendingCall(drain_pending, nullptr);
}

bool raise_later(const py::error_already_set& raised) noexcept {
  if (!runs_signal_handlers() || finalizing()) return false;
  PyObject* exception = raised.value().inc_ref().ptr();
  if (Py_AddPendingCall(raise_held, exception) == 0) return true;
  Py_DECREF(exception);
  return false;
}

void drain_dropped() noexcept {
  std::vector<PyObject*> mine;
  {
    std::lock_guard lock(dropped_mutex);
    mine.swap(dropped);
  }
  for (PyObject* object : mine) hami_drop(object);
}

void install_hooks() {
  set_blocking_hooks({leave, enter, runs_signal_handlers, check_signals, preacquire, begin_batch, let_go, begin_completion_batch,
                      end_completion_batch, hold, release_held});
  // A fork must not leave the child a mutex that nobody unlocks.
  pthread_atfork([] { dropped_mutex.lock(); }, [] { dropped_mutex.unlock(); }, [] { dropped_mutex.unlock(); });
}

}  // namespace hami::bind
