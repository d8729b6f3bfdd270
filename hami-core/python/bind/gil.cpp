// GIL hooks for the core, and reference counts of threads that do not hold the GIL.
#include "gil.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "completion_batch.hpp"
#include "errors.hpp"
#include "sync/api.hpp"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
extern "C" PyAPI_FUNC(void) _PyThreadState_SetCurrent(PyThreadState* state);
#endif

namespace hami::bind {

bool finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

namespace {

// The main thread finalizes the interpreter and may use Python while it does.
bool on_main_thread() noexcept { return syscall(SYS_gettid) == getpid(); }

}  // namespace

// After a fork the main thread may be another one.
bool runs_signal_handlers() noexcept {
  thread_local unsigned checked_generation = ~0u;
  thread_local bool is_main = false;
  if (const unsigned generation = fork_generation(); checked_generation != generation) {
    checked_generation = generation;
    is_main = on_main_thread();
  }
  return is_main;
}

namespace {

void halt_if_finalizing() noexcept {
  if (finalizing() && !on_main_thread()) hami_halt_thread();
}

void restore_thread(PyThreadState* state) noexcept {
  halt_if_finalizing();
  hami_restore_thread(state);
}

void end_thread_state(PyThreadState* state) noexcept {
  if (finalizing() || !Py_IsInitialized()) return;
  restore_thread(state);
  PyGILState_Release(PyGILState_UNLOCKED);
}

// The PyThreadState of a thread of the core, from its start until its end. CPython aborts if it has to create one without
// memory, and a thread that completes a request cannot go without the GIL. Thread-local Python data (threading.local)
// survives from one `forward` to the next.
thread_local PyThreadState* core_thread_state = nullptr;

#ifdef Py_GIL_DISABLED
// Each thread has a heap of its own there, which takes 32 MiB of addresses for its first object, and gives them back with
// the last one. This object keeps them, so that the thread can complete requests when memory has ended.
thread_local PyObject* heap_holder = nullptr;

bool hold_heap() noexcept {
  const HoldGil attached;
  heap_holder = PyList_New(0);
  if (!heap_holder) PyErr_Clear();
  return heap_holder != nullptr;
}

void release_heap() noexcept {
  if (!heap_holder || finalizing() || !Py_IsInitialized()) return;
  const HoldGil attached;
  Py_CLEAR(heap_holder);
}
#else
bool hold_heap() noexcept { return true; }
void release_heap() noexcept {}
#endif

void detach_thread() noexcept {
  release_heap();
  end_thread_state(std::exchange(core_thread_state, nullptr));
}

bool attach_thread() noexcept {
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000  // PyThreadState_New crashes when out of memory
  core_thread_state = _PyThreadState_Prealloc(PyInterpreterState_Main());
  if (core_thread_state) _PyThreadState_SetCurrent(core_thread_state);
#else
  core_thread_state = PyThreadState_New(PyInterpreterState_Main());
#endif
  if (!core_thread_state) return false;
  if (hold_heap()) return true;
  detach_thread();
  return false;
}

// The same for another thread, such as one of a native plugin, from its first use of Python.
class ForeignThreadState {
 public:
  void create_once() {
    if (state_) return;
    hami_ensure_gil();
    state_ = PyEval_SaveThread();
  }
  ~ForeignThreadState() {
    if (state_) end_thread_state(state_);
  }

 private:
  PyThreadState* state_ = nullptr;
};
thread_local ForeignThreadState foreign_thread_state;

PyGILState_STATE acquire_gil() noexcept {
  halt_if_finalizing();
  if (!core_thread_state && !PyGILState_GetThisThreadState()) foreign_thread_state.create_once();
  return hami_ensure_gil();
}

// The pre-acquired GIL of this thread; set by preacquire(), consumed by HoldGil(ForBatch) or freed by
// release_preacquired().
thread_local std::optional<PyGILState_STATE> preacquired;
thread_local bool consume_on_batch = false;  // the next HoldGil(ForBatch) consumes `preacquired`

void preacquire() noexcept {
  if (!preacquired) preacquired = acquire_gil();
}

void begin_batch() noexcept {
  HAMI_ASSERT(preacquired);
  consume_on_batch = true;
}

void release_preacquired() noexcept {
  consume_on_batch = false;
  if (preacquired) PyGILState_Release(*std::exchange(preacquired, std::nullopt));
}

PyGILState_STATE consume_preacquired() noexcept {
  consume_on_batch = false;
  return *std::exchange(preacquired, std::nullopt);
}

// Leaked intentionally: threads may use them until the process ends.
Mutex& pending_mutex = *new Mutex;
std::vector<PyObject*>& pending_decrefs HAMI_GUARDED_BY(pending_mutex) = *new std::vector<PyObject*>;
// Every call asks it; threads that call at once would wait for each other at the mutex.
std::atomic<bool> has_pending_decrefs{false};

// The child of a fork must not inherit a locked mutex.
void lock_before_fork() HAMI_NO_THREAD_SAFETY_ANALYSIS { pending_mutex.lock(); }
void unlock_after_fork() HAMI_NO_THREAD_SAFETY_ANALYSIS { pending_mutex.unlock(); }

int run_pending_decrefs_call(void*) {
  run_pending_decrefs();
  return 0;
}

int raise_pending_exception(void* exception) {
  const py::object owned = py::reinterpret_steal<py::object>(static_cast<PyObject*>(exception));
  PyErr_SetObject(py::type::handle_of(owned).ptr(), owned.ptr());
  return -1;
}

void* release_for_wait() noexcept { return has_gil() ? PyEval_SaveThread() : nullptr; }

void reacquire_after_wait(void* token) noexcept {
  if (token) restore_thread(static_cast<PyThreadState*>(token));
}

// Holds the GIL during a call into a native plugin. If the plugin returns with a Python exception set, the exception is
// reported here; otherwise it would surface in unrelated code.
class PluginGil {
 public:
  explicit PluginGil(const std::string& backend) noexcept : gil_(HoldGil::ForBatch{}), backend_(backend) {}
  ~PluginGil() {
    if (!PyErr_Occurred()) return;
    try {
      py::error_already_set left_set;
      left_set.discard_as_unraisable(("hami: exception left set by the native backend " + backend_).c_str());
    } catch (const std::exception&) {  // no memory for the report
      PyErr_Clear();
    }
  }

 private:
  const HoldGil gil_;
  const py::error_scope saved_;
  const std::string& backend_;
};

void* hold_for_plugin(const std::string& backend) { return new PluginGil(backend); }

void release_plugin_gil(void* token) noexcept { delete static_cast<PluginGil*>(token); }

void check_signals() {
  const HoldGil gil;
  if (PyErr_CheckSignals() == 0) return;
  py::error_already_set raised;
  throw from_signal_handler(raised);
}

}  // namespace

// PyGILState_Check is always true once the program has created a sub-interpreter, so the thread states are compared.
bool has_gil() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyThreadState* const current = PyThreadState_GetUnchecked();
#else
  PyThreadState* const current = _PyThreadState_UncheckedGet();  // before 3.12: that of the thread that holds the GIL
#endif
  return current && current == PyGILState_GetThisThreadState();
}

HoldGil::HoldGil() noexcept : state_(acquire_gil()) {}

HoldGil::HoldGil(ForBatch) noexcept : state_(consume_on_batch ? consume_preacquired() : acquire_gil()) {}

HoldGil::~HoldGil() { PyGILState_Release(state_); }

ReleaseGil::~ReleaseGil() { restore_thread(state_); }

// Without memory for the queue, this thread waits for the GIL.
void decref_from_any_thread(PyObject* object) noexcept {
  if (has_gil()) return hami_decref(object);
  bool first;
  try {
    MutexLock lock(pending_mutex);
    first = pending_decrefs.empty();
    pending_decrefs.push_back(object);
    has_pending_decrefs.store(true, std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    const HoldGil gil;
    return hami_decref(object);
  }
  // The main thread runs them if no other thread does so earlier.
  if (first && !finalizing()) Py_AddPendingCall(run_pending_decrefs_call, nullptr);
}

void run_pending_decrefs() noexcept {
  HAMI_ASSERT(has_gil());
  if (!has_pending_decrefs.load(std::memory_order_relaxed)) return;  // or the pending call that the other thread added
  std::vector<PyObject*> objects;
  {
    MutexLock lock(pending_mutex);
    objects.swap(pending_decrefs);
    has_pending_decrefs.store(false, std::memory_order_relaxed);
  }
  for (PyObject* object : objects) hami_decref(object);
}

namespace {

// Whether CPython had no memory for an exception object; or, before 3.12, for the frame of a call, which it reports by a text.
bool is_bare_memory_error(PyObject* type, [[maybe_unused]] PyObject* value) noexcept {
  if (PyErr_GivenExceptionMatches(type, PyExc_MemoryError)) return !value;
#if PY_VERSION_HEX < 0x030C0000
  if (type == PyExc_SystemError && value && PyUnicode_Check(value)) {
    const char* const text = PyUnicode_AsUTF8(value);
    if (!text) PyErr_Clear();
    return !text || std::strstr(text, "returned NULL without setting an exception");
  }
#endif
  return false;
}

}  // namespace

void throw_python_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  if (is_bare_memory_error(type, value)) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    throw std::bad_alloc();
  }
  PyErr_Restore(type, value, trace);
  throw py::error_already_set();
}

bool raise_later(const py::error_already_set& raised) noexcept {
  if (!runs_signal_handlers() || finalizing()) return false;
  PyObject* exception = raised.value().inc_ref().ptr();
  if (Py_AddPendingCall(raise_pending_exception, exception) == 0) return true;
  Py_DECREF(exception);
  return false;
}

void install_hooks() {
  set_blocking_hooks({attach_thread, detach_thread, release_for_wait, reacquire_after_wait, runs_signal_handlers,
                      check_signals, preacquire, begin_batch, release_preacquired, begin_completion_batch,
                      end_completion_batch, hold_for_plugin, release_plugin_gil});
  pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);
}

}  // namespace hami::bind
