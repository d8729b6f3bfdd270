// BackendServices: its methods in Python.
#include "backend_services.hpp"

namespace hami::bind {

Ref<BackendHandle> BackendServices::find(const std::string& name) const {
  const std::shared_ptr<PipeContext> pipe = context();
  if (!*pipe->instances.is_alive()) throw Error::pipe_closed();
  if (pipe->shutdown.opened())
    pipe->instances.get(name);
  else
    pipe->instances.expect(name, node_);
  return make_object<BackendHandle>(pipe, name);
}

void register_backend_services(py::module_& module) {
  py::class_<BackendServices>(module, "BackendServices", "What a Python backend reaches of its pipe.")
      .def_property_readonly("node", &BackendServices::node, "The name of the node.")
      .def_property_readonly("store", &BackendServices::store, "The store of the pipe.")
      .def("find", &BackendServices::find, py::arg("name"), "Return an instance of the pipe by name.")
      .def("queue", &BackendServices::queue, py::arg("name"), "Return a queue of the pipe by name.")
      .def("count", &BackendServices::count, py::arg("name"), py::arg("by"), "Add to a counter of the node.")
      .def("remark", &BackendServices::remark, py::arg("text"), "Add a sentence about the node.");
}

}  // namespace hami::bind
