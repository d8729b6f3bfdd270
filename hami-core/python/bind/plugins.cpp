// load_library: a native plugin's classes as handles.
#include "plugins.hpp"

#include <pybind11/stl.h>

#include "plugin/library.hpp"
#include "python_backend.hpp"

namespace hami::bind {
namespace {

// The library's own code runs without the lock.
py::tuple load(const py::bytes& name, const std::string& owner) {
  const std::string path = name;  // of whatever bytes a file's name has
  NativePlugin plugin;
  {
    const ReleaseGil released;
    plugin = load_library(path, owner);
  }
  py::list handles;
  for (ClassPtr& cls : plugin.classes) handles.append(py::cast(ClassHandle{std::move(cls)}));
  return py::make_tuple(plugin.name, plugin.version, plugin.abi, handles);
}

}  // namespace

void register_plugins(py::module_& module) {
  py::register_exception<AbiRefused>(module, "AbiRefused");
  module.def("served_abi", served_abi);
  module.def("load_library", load, py::arg("path"), py::arg("owner"));
}

}  // namespace hami::bind
