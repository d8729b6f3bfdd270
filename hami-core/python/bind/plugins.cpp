// Loads a native plugin's library and returns its backend classes.
#include "plugins.hpp"

#include <pybind11/stl.h>

#include "backend_classes.hpp"
#include "lang/api.hpp"
#include "plugin/api.hpp"

namespace hami::bind {
namespace {

// Releases the GIL while the library's code runs.
py::tuple load(const py::bytes& name, const std::string& owner) {
  const std::string path = name;  // a file name may not be valid UTF-8
  NativePlugin plugin;
  {
    const ReleaseGil released;
    plugin = load_library(path, owner);
  }
  py::list handles;
  for (ClassPtr& cls : plugin.classes) handles.append(py::cast(ClassHandle{std::move(cls)}));
  return py::make_tuple(plugin.name, plugin.version, plugin.abi, plugin.since, handles);
}

}  // namespace

void register_plugins(py::module_& module) {
  py::register_exception<IncompatibleAbi>(module, "AbiMismatch");
  module.def("supported_abi", served_abi,
             "Return the version of the plugin ABI, such as \"1.0\", that this core supports.");
  module.def("allow_library", [](const py::bytes& path) { allow_library(path); }, py::arg("path"),
             "Allow configurations to load a file with native code, or any file in a folder.");
  module.def("check_library", [](const py::bytes& path, const std::string& what) {
    check_library(path, what);
  }, py::arg("path"), py::arg("what"), "Raise ConfigError if a configuration may not load this file with native code.");
  module.def(
      "load_library", load, py::arg("path"), py::arg("owner"),
      "Load a native plugin and return its name, its version, the ABI version it was built with, the first release "
      "of the core that it runs with, and its backend classes.");
}

}  // namespace hami::bind
