// hami.Queue.
#include "sync/queue.hpp"

#include <pybind11/stl.h>

#include "core_objects.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kQueueDoc = R"(A bounded queue between threads, and between a pipe and its surroundings.

    queue = hami.Queue(max=4)
    queue.put(frame, timeout=1.0)
    for frame in queue: ...                  # until it is closed and empty

What waits lets other threads run and ends at Ctrl-C. After close() nothing more gets in; what is in it may still be taken.)";

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

std::string show_queue(const Queue& queue) {
  const std::string name = queue.name().empty() ? "" : " \"" + queue.name() + "\"";
  return "<hami.Queue" + name + ": " + std::to_string(queue.size()) + " of " + std::to_string(queue.max()) +
         (queue.closed() ? ", closed>" : ">");
}

}  // namespace

void register_queue(py::module_& module) {
  py::class_<Queue, Ref<Queue>> queue(module, "Queue", kQueueDoc, py::is_final());
  queue.attr("__module__") = "hami";
  queue
      .def(py::init([](std::int64_t max, std::string name) { return make_object<Queue>(max, std::move(name)); }),
           py::arg("max") = Queue::kDefaultMax, py::kw_only(), py::arg("name") = "")
      .def("put", [](Queue& self, py::handle item, const py::object& timeout) { self.push(to_value(item), until_of(timeout)); },
           py::arg("item"), py::arg("timeout") = py::none(),
           "Add an item, waiting for room for `timeout` seconds. Raises DeadlineExceeded if there is none in time, QueueFull if "
           "`timeout` is 0, PipeClosed if the queue is closed.")
      .def("try_put", [](Queue& self, py::handle item) { return self.try_push(to_value(item)); }, py::arg("item"),
           "Add an item if there is room, and return whether there was. Raises PipeClosed if the queue is closed.")
      .def("get", [](Queue& self, const py::object& timeout) { return to_python(self.pop(until_of(timeout))); },
           py::arg("timeout") = py::none(),
           "Take the oldest item, waiting for one for `timeout` seconds. Raises DeadlineExceeded if none comes in time, "
           "PipeClosed if the queue is closed and empty.")
      .def("try_get", try_get, py::arg("default") = py::none(),
           "Take the oldest item, or return `default` if there is none. Raises PipeClosed if the queue is closed and empty.")
      .def("peek", peek, py::arg("default") = py::none(), "Return the oldest item, which stays, or `default` if there is none.")
      .def("close", &Queue::close, "Let nothing more in; whoever waits is told.")
      .def_property_readonly("closed", &Queue::closed, "Whether close was called.")
      .def_property_readonly("max", &Queue::max, "How many items it holds at most.")
      .def_property_readonly("name", &Queue::name, "The name that messages show.")
      .def("__len__", &Queue::size)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", next)
      .def("__repr__", show_queue);
}

}  // namespace hami::bind
