// Answer: as much of an asyncio.Future as a task asks of what it awaits.
//
// A future has its loop call the task, later and through Python. An answer is settled by a callback of the loop, while no task
// runs, and calls the task itself. All but the bringing is for the loop's thread.
#include "awaitable.hpp"

#include <structmember.h>

#include <string>
#include <utility>

namespace hami::bind {
namespace awaitables {  // the binding may be compiled as one file, where others have slots and methods too
namespace {

enum class State : char { kOpen, kSettled, kGivenUp };

struct Awaitable {
  PyObject_HEAD
  PyObject* loop;
  PyObject* outcome;  // of the thread that brings it: an exception or None
  PyObject* error;    // to be raised, once
  PyObject* wake;     // the task's, once it waits
  PyObject* context;  // to call it in
  Call* call;         // until there is an outcome, which it holds where no gc can see it
  State state;
  char blocking;  // set by who waits and taken back by its task: so that knows what has been awaited
};

PyTypeObject* type = nullptr;

Awaitable& of(PyObject* self) noexcept { return *reinterpret_cast<Awaitable*>(self); }

void release_call(Awaitable& awaitable) noexcept {
  if (Call* const call = std::exchange(awaitable.call, nullptr)) call->release();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(of(self).loop);
  Py_VISIT(of(self).outcome);
  Py_VISIT(of(self).error);
  Py_VISIT(of(self).wake);
  Py_VISIT(of(self).context);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(of(self).loop);
  Py_CLEAR(of(self).outcome);
  Py_CLEAR(of(self).error);
  Py_CLEAR(of(self).wake);
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

// Raises the error, if it is one. Its traceback will hold frames that hold this.
bool raised(Awaitable& awaitable) noexcept {
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
    raised(awaitable);
    return nullptr;
  }
  if (awaitable.state == State::kGivenUp || awaitable.wake) {
    PyErr_SetString(PyExc_RuntimeError, "a request is awaited by one task, once");
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

// A StopIteration means something else to a coroutine, a CancelledError to a task: nobody has cancelled it.
PyObject* raisable(PyObject* error) noexcept {
  PyObject* const cancelled = cancelled_error();
  if (!cancelled) PyErr_Clear();
  const bool misleads = PyErr_GivenExceptionMatches(error, PyExc_StopIteration) ||
                        (cancelled && PyErr_GivenExceptionMatches(error, cancelled));
  Py_XDECREF(cancelled);
  if (!misleads) return error;
  const std::string what = std::string("a backend raised ") + Py_TYPE(error)->tp_name;
  PyObject* const reason = PyObject_CallFunction(PyExc_RuntimeError, "s", what.c_str());
  if (reason)
    PyException_SetCause(reason, error);
  else
    Py_DECREF(error);
  return reason;
}

PyObject* settle_now(PyObject* self, PyObject*) {
  Awaitable& awaitable = of(self);
  PyObject* const outcome = std::exchange(awaitable.outcome, nullptr);
  if (awaitable.state != State::kOpen) {
    Py_XDECREF(outcome);
  } else if (!outcome) {
    PyErr_SetString(PyExc_RuntimeError, "no outcome was brought");
    return nullptr;
  } else {
    awaitable.state = State::kSettled;
    release_call(awaitable);
    if (Py_IsNone(outcome))
      Py_DECREF(outcome);
    else if (!(awaitable.error = raisable(outcome)))
      return nullptr;
  }
  if (!awaitable.wake) Py_RETURN_NONE;  // nobody waits yet, or its task was cancelled
  PyObject* const wake = std::exchange(awaitable.wake, nullptr);
  PyObject* const context = std::exchange(awaitable.context, nullptr);
  PyObject* result = nullptr;
  if (PyContext_Enter(context) == 0) {
    result = hami_call(wake, &self, 1);
    if (PyContext_Exit(context) != 0) Py_CLEAR(result);
  }
  Py_DECREF(wake);
  Py_DECREF(context);
  return result;
}

PyObject* get_loop(PyObject* self, PyObject*) { return Py_NewRef(of(self).loop); }

PyObject* result(PyObject* self, PyObject*) {
  if (raised(of(self))) return nullptr;
  Py_RETURN_NONE;
}

// The loop calls the task later, where another one may run now.
bool wake_soon(PyObject* self) noexcept {
  Awaitable& awaitable = of(self);
  if (!awaitable.wake) return true;
  try {
    const auto wake = py::reinterpret_steal<py::object>(std::exchange(awaitable.wake, nullptr));
    const auto context = py::reinterpret_steal<py::object>(std::exchange(awaitable.context, nullptr));
    py::handle(awaitable.loop).attr("call_soon")(wake, py::handle(self), py::arg("context") = context);
    return true;
  } catch (py::error_already_set& error) {
    error.restore();
    return false;
  }
}

PyObject* add_done_callback(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  const bool has_context = names && PyTuple_GET_SIZE(names) == 1;
  if (count != 1 || !has_context || !PyContext_CheckExact(given[1]) || of(self).wake) {
    PyErr_SetString(PyExc_TypeError, "only the one task that awaits it adds a callback");
    return nullptr;
  }
  of(self).wake = Py_NewRef(given[0]);
  of(self).context = Py_NewRef(given[1]);
  if (of(self).state != State::kOpen && !wake_soon(self)) return nullptr;  // who made the coroutine had begun it
  Py_RETURN_NONE;
}

// cancel(msg=None).
PyObject* cancel(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  Awaitable& awaitable = of(self);
  if (awaitable.state != State::kOpen) Py_RETURN_FALSE;
  awaitable.state = State::kGivenUp;
  try {
    const bool told_why = count + (names ? PyTuple_GET_SIZE(names) : 0) > 0 && !Py_IsNone(given[0]);
    const auto error = py::reinterpret_steal<py::object>(cancelled_error());
    if (!error) throw py::error_already_set();
    awaitable.error = (told_why ? error(py::handle(given[0])) : error()).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
  if (!wake_soon(self)) return nullptr;
  Py_RETURN_TRUE;
}

PyObject* give_up(PyObject* self, PyObject*) {
  Awaitable& awaitable = of(self);
  if (awaitable.state != State::kSettled) {
    awaitable.state = State::kGivenUp;
    if (const Ref<Call> call{awaitable.call}; call) {
      release_call(awaitable);
      const ReleaseGil released;
      call->give_up(Error(ErrorCode::kCancelled, "cancelled by its caller"));
    }
  }
  Py_RETURN_NONE;
}

template <class Function>
PyCFunction erased(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"settle", settle_now, METH_NOARGS, "Take the outcome that was brought, and run the task until it waits again."},
    {"give_up", give_up, METH_NOARGS, "Take no outcome any more; if there is none, the request is cancelled."},
    {"get_loop", get_loop, METH_NOARGS, "For the task."},
    {"add_done_callback", erased(add_done_callback), METH_FASTCALL | METH_KEYWORDS, "For the task."},
    {"cancel", erased(cancel), METH_FASTCALL | METH_KEYWORDS, "For the task."},
    {"result", result, METH_NOARGS, "For the task."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {{"_asyncio_future_blocking", T_BOOL, offsetof(Awaitable, blocking), 0, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("What a task awaits of one request.")},
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
  made->outcome = made->error = made->wake = made->context = nullptr;
  made->call = nullptr;
  made->state = awaitables::State::kOpen;
  made->blocking = 0;
  PyObject_GC_Track(made);
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

void set_call(py::handle awaitable, Call& call) noexcept {
  Awaitable& made = awaitables::of(awaitable.ptr());
  if (made.state != awaitables::State::kOpen) return;
  call.retain();
  made.call = &call;
}

void set_outcome(py::handle awaitable, py::handle error) noexcept {
  PyObject* const before = std::exchange(awaitables::of(awaitable.ptr()).outcome, error.inc_ref().ptr());
  Py_XDECREF(before);
}

void settle(py::handle awaitable) {
  const auto none = py::reinterpret_steal<py::object>(awaitables::settle_now(awaitable.ptr(), nullptr));
  if (!none) throw py::error_already_set();
}

void register_awaitable(py::module_& module) {
  PyObject* const made = PyType_FromSpec(&awaitables::spec);
  if (!made) throw py::error_already_set();
  awaitables::type = reinterpret_cast<PyTypeObject*>(made);
  module.add_object("Awaitable", py::reinterpret_borrow<py::object>(made));
}

}  // namespace hami::bind
