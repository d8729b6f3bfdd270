// hami.Queue: a bounded queue between threads.

#include <pybind11/stl.h>

#include "core_objects.hpp"
#include "sync/api.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kQueueDoc =
    R"(A bounded first-in, first-out queue between threads, or between a pipe and the program.

    queue = hami.Queue(max=4)
    queue.put(frame, timeout=1.0)
    for frame in queue: ...                  # until the queue is closed and empty

Blocking methods release the GIL and are interrupted by Ctrl-C. After close(), puts fail and the remaining items can still be
taken.)";

py::object next(Queue& queue) {
  std::optional<Value> value = queue.next();
  if (!value) throw py::stop_iteration();
  return to_python(*value);
}

py::object try_get(Queue& queue, py::object fallback) {
  const std::optional<Value> value = queue.try_pop();
  return value ? to_python(*value) : fallback;
}

py::object peek(const Queue& queue, py::object fallback) {
  const std::optional<Value> value = queue.peek();
  return value ? to_python(*value) : fallback;
}

py::list take_all(Queue& queue, const py::object& timeout) {
  py::list all;
  for (const Value& value : queue.pop_all(deadline_after(timeout))) all.append(to_python(value));
  return all;
}

std::string show_queue(const Queue& queue) {
  const std::string name = queue.name().empty() ? "" : " \"" + queue.name() + "\"";
  return "<hami.Queue" + name + ": " + std::to_string(queue.size()) + " of " + std::to_string(queue.max()) +
         (queue.closed() ? ", closed>" : ">");
}

}  // namespace

void register_queue(py::module_& module) {
  py::class_<Queue, Ref<Queue>> queue(module, "Queue", kQueueDoc, py::is_final());
  keep_shared_objects<Ref<Queue>>(queue);
  queue.attr("__module__") = "hami";
  queue
      .def(py::init([](std::int64_t max, std::string name) { return make_object<Queue>(max, std::move(name)); }),
           py::arg("max") = Queue::kDefaultMax, py::kw_only(), py::arg("name") = "")
      .def("put",
           [](Queue& self, py::handle item, const py::object& timeout) {
    self.push(to_value(item), deadline_after(timeout));
  }, py::arg("item"), py::arg("timeout") = py::none(),
           "Add an item, waiting at most `timeout` seconds (None: no limit) while the queue is full. Raises "
           "DeadlineExceeded on "
           "timeout, QueueFull if the queue is full and `timeout` is 0, PipeClosed if the queue is closed.")
      .def("try_put", [](Queue& self, py::handle item) { return self.try_push(to_value(item)); }, py::arg("item"),
           "Add an item without waiting. Returns False if the queue is full. Raises PipeClosed if the queue is closed.")
      .def("get", [](Queue& self, const py::object& timeout) { return to_python(self.pop(deadline_after(timeout))); },
           py::arg("timeout") = py::none(),
           "Remove and return the oldest item, waiting at most `timeout` seconds (None: no limit). Raises "
           "DeadlineExceeded on "
           "timeout, PipeClosed if the queue is closed and empty.")
      .def("try_get", try_get, py::arg("default") = py::none(),
           "Remove and return the oldest item, or return `default` if the queue is empty. Raises PipeClosed if the "
           "queue is also "
           "closed.")
      .def("peek", peek, py::arg("default") = py::none(),
           "Return the oldest item without removing it, or `default` if the queue is empty.")
      .def("_take_all", take_all, py::arg("timeout") = py::none())
      .def("_readable", &Queue::readable)
      .def("close",
           [](Queue& self) {
    const ReleaseGil released;  // it may complete an event
    self.close();
  }, "Reject further puts and wake all waiting threads; threads that wait in put() raise PipeClosed.")
      .def_property_readonly("closed", &Queue::closed, "Whether close() was called.")
      .def_property_readonly("max", &Queue::max, "The maximum number of items.")
      .def_property_readonly("name", &Queue::name, "The name shown in error messages.")
      .def("__len__", &Queue::size)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", next)
      .def("__repr__", show_queue);
}

}  // namespace hami::bind
