// Awaitable: the part of the asyncio.Future interface that a task uses.
//
// An asyncio.Future schedules its task through the loop. An Awaitable is settled by a loop callback, while no task
// runs, and resumes its task directly, without another pass through the loop. Only set_outcome may run outside the
// thread of the loop.
//
//   kPending --settle--> kSettled      the outcome is applied; `error` is raised by the task, or None is returned
//   kPending --cancel, abandon--> kAbandoned      a later outcome is discarded
#include "awaitable.hpp"

#include <structmember.h>

#include <utility>

#include "errors.hpp"

namespace hami::bind {
namespace awaitables {  // keeps generic names such as `slots` apart in a unity build
namespace {

enum class State : char { kPending, kSettled, kAbandoned };

struct Awaitable {
  PyObject_HEAD PyObject* loop;
  PyObject* outcome;  // set by any thread, not yet applied: an exception or None
  PyObject* error;    // to be raised in the task, once
  PyObject* wakeup;   // the task's callback while it awaits
  PyObject* context;  // the context to run `wakeup` in
  Call* call;         // until there is an outcome; the garbage collector cannot see the dict that the call holds
  State state;
  char blocking;  // _asyncio_future_blocking: __next__ sets it, the task clears it to verify what it awaits
};

PyTypeObject* type = nullptr;

// The type of `self`: only objects of this type have these slots.
Awaitable& of(PyObject* self) noexcept { return *reinterpret_cast<Awaitable*>(self); }

void release_call(Awaitable& awaitable) noexcept {
  if (Call* const call = std::exchange(awaitable.call, nullptr)) call->release();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(of(self).loop);
  Py_VISIT(of(self).outcome);
  Py_VISIT(of(self).error);
  Py_VISIT(of(self).wakeup);
  Py_VISIT(of(self).context);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(of(self).loop);
  Py_CLEAR(of(self).outcome);
  Py_CLEAR(of(self).error);
  Py_CLEAR(of(self).wakeup);
  Py_CLEAR(of(self).context);
  return 0;
}

void dealloc(PyObject* self) {
  PyTypeObject* const cls = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  release_call(of(self));
  PyObject_GC_Del(self);
  Py_DECREF(cls);
}

// Raises the stored error, if any. Drops the reference to it, because its traceback refers to frames that refer to
// `self`.
bool raise_error(Awaitable& awaitable) noexcept {
  PyObject* const error = std::exchange(awaitable.error, nullptr);
  if (!error) return false;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
  return true;
}

PyObject* await(PyObject* self) { return Py_NewRef(self); }

PyObject* next(PyObject* self) {
  Awaitable& awaitable = of(self);
  if (awaitable.state == State::kSettled) {
    raise_error(awaitable);
    return nullptr;
  }
  if (awaitable.state == State::kAbandoned || awaitable.wakeup) {
    PyErr_SetString(PyExc_RuntimeError, "a request can be awaited only once, by one task");
    return nullptr;
  }
  awaitable.blocking = 1;
  return Py_NewRef(self);
}

PyObject* cancelled_error() noexcept {
  PyObject* const asyncio = PyImport_ImportModule("asyncio");
  PyObject* const found = asyncio ? PyObject_GetAttrString(asyncio, "CancelledError") : nullptr;
  Py_XDECREF(asyncio);
  return found;
}

PyObject* settle_self(PyObject* self, PyObject*) {
  Awaitable& awaitable = of(self);
  PyObject* const outcome = std::exchange(awaitable.outcome, nullptr);
  if (awaitable.state != State::kPending) {
    Py_XDECREF(outcome);
  } else if (!outcome) {
    PyErr_SetString(PyExc_RuntimeError, "settle() was called before the request completed");
    return nullptr;
  } else {
    awaitable.state = State::kSettled;
    release_call(awaitable);
    if (Py_IsNone(outcome))
      Py_DECREF(outcome);
    else
      awaitable.error = outcome;
  }
  if (!awaitable.wakeup) Py_RETURN_NONE;  // the task does not await yet, or was cancelled
  PyObject* const wakeup = std::exchange(awaitable.wakeup, nullptr);
  PyObject* const context = std::exchange(awaitable.context, nullptr);
  PyObject* result = nullptr;
  if (PyContext_Enter(context) == 0) {
    result = hami_call(wakeup, &self, 1);
    if (PyContext_Exit(context) != 0) Py_CLEAR(result);
  }
  Py_DECREF(wakeup);
  Py_DECREF(context);
  return result;
}

PyObject* get_loop(PyObject* self, PyObject*) { return Py_NewRef(of(self).loop); }

PyObject* result(PyObject* self, PyObject*) {
  if (raise_error(of(self))) return nullptr;
  Py_RETURN_NONE;
}

// Schedules the task through the loop, for use while another task may run.
bool schedule_wakeup(PyObject* self) noexcept {
  Awaitable& awaitable = of(self);
  if (!awaitable.wakeup) return true;
  try {
    const auto wakeup = py::reinterpret_steal<py::object>(std::exchange(awaitable.wakeup, nullptr));
    const auto context = py::reinterpret_steal<py::object>(std::exchange(awaitable.context, nullptr));
    py::handle(awaitable.loop).attr("call_soon")(wakeup, py::handle(self), py::arg("context") = context);
    return true;
  } catch (...) {
    set_python_error();
    return false;
  }
}

PyObject* add_done_callback(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  const bool has_context = names && PyTuple_GET_SIZE(names) == 1;
  if (count != 1 || !has_context || !PyContext_CheckExact(given[1]) || of(self).wakeup) {
    PyErr_SetString(PyExc_TypeError, "only the task that awaits the request can add a callback");
    return nullptr;
  }
  of(self).wakeup = Py_NewRef(given[0]);
  of(self).context = Py_NewRef(given[1]);
  if (of(self).state != State::kPending && !schedule_wakeup(self))
    return nullptr;  // settled between __next__ and this call
  Py_RETURN_NONE;
}

// cancel(msg=None), as asyncio.Task calls it.
PyObject* cancel(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  Awaitable& awaitable = of(self);
  if (awaitable.state != State::kPending) Py_RETURN_FALSE;
  awaitable.state = State::kAbandoned;
  try {
    const bool has_message = count + (names ? PyTuple_GET_SIZE(names) : 0) > 0 && !Py_IsNone(given[0]);
    const auto error = py::reinterpret_steal<py::object>(cancelled_error());
    if (!error) throw py::error_already_set();
    awaitable.error = (has_message ? error(py::handle(given[0])) : error()).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  if (!schedule_wakeup(self)) return nullptr;
  Py_RETURN_TRUE;
}

PyObject* abandon(PyObject* self, PyObject*) {
  Awaitable& awaitable = of(self);
  if (awaitable.state != State::kSettled) {
    awaitable.state = State::kAbandoned;
    if (const Ref<Call> call{awaitable.call}; call) {
      release_call(awaitable);
      const ReleaseGil released;
      call->give_up(Error::cancelled());
    }
  }
  Py_RETURN_NONE;
}

template <class Function>
PyCFunction erased(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"settle", settle_self, METH_NOARGS, "Apply the stored outcome and run the task until it waits again."},
    {"abandon", abandon, METH_NOARGS, "Discard the outcome, and cancel the request if it has not completed."},
    {"get_loop", get_loop, METH_NOARGS, "Return the event loop. Called by asyncio."},
    {"add_done_callback", erased(add_done_callback), METH_FASTCALL | METH_KEYWORDS,
     "Store the task's wake-up callback. Called by asyncio."},
    {"cancel", erased(cancel), METH_FASTCALL | METH_KEYWORDS,
     "Resume the task with CancelledError; return False if the request has completed. Called by asyncio."},
    {"result", result, METH_NOARGS, "Raise the error of the request, if any. Called by asyncio."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {{"_asyncio_future_blocking", T_BOOL, offsetof(Awaitable, blocking), 0, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The completion of one request, to be awaited by one asyncio task.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_am_await, reinterpret_cast<void*>(await)},
    {Py_tp_iter, reinterpret_cast<void*>(await)},
    {Py_tp_iternext, reinterpret_cast<void*>(next)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr}};

PyType_Spec spec = {"hami._core.Awaitable", sizeof(Awaitable), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace
}  // namespace awaitables

using awaitables::Awaitable;

py::object make_awaitable(py::handle loop) {
  Awaitable* const made = PyObject_GC_New(Awaitable, awaitables::type);
  if (!made) throw py::error_already_set();
  made->loop = loop.inc_ref().ptr();
  made->outcome = made->error = made->wakeup = made->context = nullptr;
  made->call = nullptr;
  made->state = awaitables::State::kPending;
  made->blocking = 0;
  PyObject_GC_Track(made);
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

void set_call(py::handle awaitable, Call& call) noexcept {
  Awaitable& made = awaitables::of(awaitable.ptr());
  if (made.state != awaitables::State::kPending) return;
  call.retain();
  made.call = &call;
}

void set_outcome(py::handle awaitable, py::handle error) noexcept {
  HAMI_ASSERT(has_gil());
  PyObject* const previous = std::exchange(awaitables::of(awaitable.ptr()).outcome, error.inc_ref().ptr());
  Py_XDECREF(previous);
}

void settle(py::handle awaitable) {
  const auto none = py::reinterpret_steal<py::object>(awaitables::settle_self(awaitable.ptr(), nullptr));
  if (!none) throw py::error_already_set();
}

void settle_inline(py::handle awaitable) {
  static constexpr Nanoseconds kLoopShare = 200'000;  // 0.2 ms; a pass of an idle loop takes some microseconds
  thread_local Nanoseconds last_pass = 0;             // when a task of this thread last waited for a pass of its loop
  const Nanoseconds moment = now();
  if (moment - last_pass < kLoopShare) return settle(awaitable);
  last_pass = moment;
  py::handle(awaitables::of(awaitable.ptr()).loop).attr("call_soon")(awaitable.attr("settle"));
}

void register_awaitable(py::module_& module) {
  PyObject* const made = PyType_FromSpec(&awaitables::spec);
  if (!made) throw py::error_already_set();
  awaitables::type = reinterpret_cast<PyTypeObject*>(made);
  module.add_object("Awaitable", py::reinterpret_borrow<py::object>(made));
}

}  // namespace hami::bind
