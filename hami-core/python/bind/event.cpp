// hami.Event: a one-shot event.

#include <pybind11/stl.h>

#include "completion_batch.hpp"
#include "core_objects.hpp"
#include "errors.hpp"
#include "greenlets.hpp"
#include "sync/api.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kEventDoc = R"(A one-shot event that completes once, with a value or an exception.

    event = hami.Event()
    pipe({"data": image, "event": event})    # returns at once
    if event.wait(timeout=1.0):
        result = event.value()

`hami.Event(count)` completes after `count` requests or calls of `notify` and `fail`: its value is None, and its exception
the first one. Thread-safe. The first completion wins. `await event` works in any asyncio loop: it returns the value or raises the
exception.)";

// Runs a Python callback on the current thread and releases it.
void run_callback(PyRef& function, const Event& event) noexcept {
  const HoldGil gil;
  try {
    call_python(function.get(), from_core_object(const_cast<Event&>(event)));
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: a callback of an Event");
  } catch (const std::exception&) {  // no memory for the call
    PyErr_NoMemory();
    PyErr_WriteUnraisable(function.get().ptr());
  }
  function = PyRef();
}

// Runs an idempotent callback, of a task that awaits the event, and releases it.
void wake_task(PyRef& function, const Event& event) noexcept {
  const HoldGil gil;
  constexpr Nanoseconds kOnOtherThread = 1'000'000'000;
  if (!complete_reliably("hami: waking a task that awaits an Event", memory_timeout(kOnOtherThread),
                         [&] { call_python(function.get(), from_core_object(const_cast<Event&>(event))); })) {
    PyErr_NoMemory();
    PyErr_WriteUnraisable(function.get().ptr());
  }
  function = PyRef();
}

template <void (*run)(PyRef&, const Event&) noexcept>
std::uint64_t watch(Event& event, py::object function) {
  check_greenlet();
  if (!PyCallable_Check(function.ptr()))
    throw Error(ErrorCode::kDataType,
                "a callback must be a function of one argument, got " + std::string(py::repr(function)));
  auto callback = std::make_shared<PyRef>(std::move(function));
  return event.on_done([callback](const Event& done) { run(*callback, done); });
}

bool notify(Event& event, py::handle given) {
  check_greenlet();
  Value value = to_value(given);
  const ReleaseGil released;  // callbacks of the core may wait
  return event.notify(std::move(value));
}

bool fail_event(Event& event, py::object exception) {
  check_greenlet();
  Error error = from_exception(as_exception(std::move(exception)));
  const ReleaseGil released;
  return event.fail(std::move(error));
}

py::object exception(const Event& event) {
  const std::optional<Error> error = event.error();
  return error ? to_exception(*error) : py::none();
}

std::string show_event(const Event& event) {
  if (!event.done()) return "<hami.Event: waiting>";
  const py::object error = exception(event);
  return error.is_none() ? "<hami.Event: done>" : "<hami.Event: failed, " + std::string(py::repr(error)) + ">";
}

py::object await(const py::object& event) {
  return py::module_::import("hami._runtime.tasks").attr("outcome")(event).attr("__await__")();
}

// Garbage collection. The traceback of a request's exception can refer to a frame that refers to the request's event, a
// cycle. The collector traverses only events that no C++ code refers to. It never waits for a lock, because it may run
// while all other threads are stopped.
Event* event_of(PyObject* object) noexcept {
  const py::detail::value_and_holder instance = reinterpret_cast<py::detail::instance*>(object)->get_value_and_holder();
  return instance.holder_constructed() ? instance.value_ptr<Event>() : nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  const Event* event = event_of(object);
  const Object* owned = event && event->alone() ? event->held_alone() : nullptr;
  if (owned) Py_VISIT(static_cast<PyObject*>(owned->foreign()));
  return 0;
}

int clear(PyObject* object) {
  if (Event* event = event_of(object)) event->clear_outcome();
  return 0;
}

void enable_garbage_collection(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = traverse;
  type->ht_type.tp_clear = clear;
}

}  // namespace

void register_event(py::module_& module) {
  py::class_<Event, Ref<Event>> event(module, "Event", kEventDoc, py::is_final(),
                                      py::custom_type_setup(enable_garbage_collection));
  keep_shared_objects<Ref<Event>>(event);
  event.attr("__module__") = "hami";
  const auto make = [](std::int64_t count) {
    if (count < 1)
      throw Error(ErrorCode::kConfig,
                  "the count of an Event must be an int of at least 1, got " + std::to_string(count));
    return make_object<Event>(static_cast<std::size_t>(count));
  };
  event.def(py::init(make), py::arg("count") = 1)
      .def("notify", notify, py::arg("value") = py::none(),
           "Complete the event with a value and run the callbacks. Returns False if the event was already done.")
      .def("fail", fail_event, py::arg("exception"),
           "Complete the event with an exception and run the callbacks. Returns False if the event was already done.")
      .def("done", &Event::done, "Return whether the event is complete.")
      .def("value", [](const Event& self) { return to_python(self.value()); },
           "Return the value: for a request, its `result`. Returns None before completion and after a failure.")
      .def("exception", exception, "Return the exception. Returns None before completion and after a success.")
      .def("wait",
           [](const Event& self, const py::object& timeout) { return self.wait_until(deadline_after(timeout)); },
           py::arg("timeout") = py::none(),
           "Wait at most `timeout` seconds (None: no limit) for completion and return whether the event is done. Does "
           "not raise the "
           "event's exception.")
      .def("add_done_callback",
           [](Event& self, py::object function) { watch<run_callback>(self, std::move(function)); },
           py::arg("callback"),
           "Call `callback(event)` once, on the thread that completes the event, or at once if the event is done. An "
           "exception of "
           "the callback goes to sys.unraisablehook.")
      .def("_watch", watch<wake_task>, py::arg("callback"))
      .def("_unwatch", &Event::forget, py::arg("number"))
      .def("__await__", await)
      .def("__repr__", show_event);
}

}  // namespace hami::bind
