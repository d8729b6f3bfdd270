// hami.Event.
#include "sync/event.hpp"

#include <pybind11/stl.h>

#include "core_objects.hpp"
#include "errors.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kEventDoc = R"(Something that will be done once: notified, or failed.

    event = hami.Event()
    pipe({"data": image, "event": event})    # returns at once
    event.wait(timeout=1.0) and event.value()

Thread-safe; the first outcome stands. `await event` works in any asyncio loop: it gives the value, or raises the
exception.)";

// Runs one callback of Python, on whatever thread this is, and lets it go.
void call_back(PyRef& function, const Event& event) noexcept {
  const HoldGil gil;
  try {
    call_python(function.get(), from_core_object(const_cast<Event&>(event)));
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: a callback of an Event");
  }
  function = PyRef();
}

std::uint64_t watch(Event& event, py::object function) {
  if (!PyCallable_Check(function.ptr()))
    throw Error(ErrorCode::kDataType, "a callback is a function of one argument, got " + std::string(py::repr(function)));
  auto held = std::make_shared<PyRef>(std::move(function));
  return event.on_done([held](const Event& done) { call_back(*held, done); });
}

bool notify(Event& event, py::handle given) {
  Value value = to_value(given);
  const ReleaseGil released;  // callbacks of the core may wait
  return event.notify(std::move(value));
}

bool fail_event(Event& event, py::object exception) {
  Error error = from_exception(exception_of(std::move(exception)));
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
  return py::module_::import("hami._runtime.event").attr("outcome")(event).attr("__await__")();
}

// The error of a request holds the frames that it went through, and one of them the event that the frame waited for. The
// collector sees into an event that is Python's alone. It holds no lock of others: it may run while all threads stand still.
Event* event_of(PyObject* object) noexcept {
  const py::detail::value_and_holder held = reinterpret_cast<py::detail::instance*>(object)->get_value_and_holder();
  return held.holder_constructed() ? held.value_ptr<Event>() : nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  const Event* event = event_of(object);
  const Object* held = event && event->alone() ? event->held_alone() : nullptr;
  if (held) Py_VISIT(static_cast<PyObject*>(held->foreign()));
  return 0;
}

int clear(PyObject* object) {
  if (Event* event = event_of(object)) event->clear_outcome();
  return 0;
}

void set_collected(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = traverse;
  type->ht_type.tp_clear = clear;
}

}  // namespace

void register_event(py::module_& module) {
  py::class_<Event, Ref<Event>> event(module, "Event", kEventDoc, py::is_final(), py::custom_type_setup(set_collected));
  event.attr("__module__") = "hami";
  event.def(py::init([] { return make_object<Event>(); }))
      .def("notify", notify, py::arg("value") = py::none(),
           "Say that it is done, perhaps with a value, and run the callbacks; False if there was an outcome already.")
      .def("fail", fail_event, py::arg("exception"), "Say that it failed, and run the callbacks; False if there was an outcome already.")
      .def("done", &Event::done, "Whether there is an outcome.")
      .def("value", [](const Event& self) { return to_python(self.value()); },
           "Return what it was notified with, the `result` of a request; None while it waits and if it failed.")
      .def("exception", exception, "Return why it failed; None while it waits and when all went well.")
      .def("wait", [](const Event& self, const py::object& timeout) { return self.wait_until(until_of(timeout)); },
           py::arg("timeout") = py::none(),
           "Wait until there is an outcome, at most `timeout` seconds, and return whether there is one. Raises nothing of it.")
      .def("add_done_callback", [](Event& self, py::object function) { watch(self, std::move(function)); },
           py::arg("callback"),
           "Call `callback(event)` once, on the thread that brings the outcome; now if there is one. What it raises is "
           "reported as unraisable.")
      .def("_watch", watch, py::arg("callback"))
      .def("_unwatch", &Event::forget, py::arg("number"))
      .def("__await__", await)
      .def("__repr__", show_event);
}

}  // namespace hami::bind
