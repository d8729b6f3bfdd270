// BackendServices: its methods in Python.
#include "backend_services.hpp"

#include <pybind11/stl.h>

#include "values.hpp"

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

void BackendServices::delegate(const std::optional<std::string>& name, const std::string& distribution,
                               const py::dict& params, py::object convert) {
  std::shared_ptr<const Delegate> made;
  if (name) {
    std::shared_ptr<Dict> options = options_.lock();
    if (!options) throw Error::pipe_closed();
    std::vector<std::pair<std::string, Value>> given;
    for (const auto& [key, value] : params) given.emplace_back(py::cast<std::string>(key), to_value(value));
    made = std::make_shared<const Delegate>(context(), node_, std::move(options), distribution, *name, given,
                                            std::move(convert));
  }
  const ReleaseGil release;  // the last user of the earlier one may wait for a device
  delegate_->set(std::move(made));
}

void register_backend_services(py::module_& module) {
  py::class_<BackendServices>(module, "BackendServices", "What a Python backend reaches of its pipe.")
      .def_property_readonly("node", &BackendServices::node, "The name of the node.")
      .def_property_readonly("store", &BackendServices::store, "The store of the pipe.")
      .def("find", &BackendServices::find, py::arg("name"), "Return an instance of the pipe by name.")
      .def("queue", &BackendServices::queue, py::arg("name"), "Return a queue of the pipe by name.")
      .def("count", &BackendServices::count, py::arg("name"), py::arg("by"), "Add to a counter of the node.")
      .def("remark", &BackendServices::remark, py::arg("text"), "Add a sentence about the node.")
      .def("delegate", &BackendServices::delegate, py::arg("name"), py::arg("distribution"), py::arg("params"),
           py::arg("convert"), "Give batches to another backend first; None as its name: no longer.");
}

}  // namespace hami::bind
