// Registers the contents of hami._core.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "backend_classes.hpp"
#include "backend_services.hpp"
#include "config.hpp"
#include "core_objects.hpp"
#include "errors.hpp"
#include "expression.hpp"
#include "failing_allocations.hpp"
#include "gil.hpp"
#include "greenlets.hpp"
#include "logging.hpp"
#include "native_caller.hpp"
#include "part.hpp"
#include "pipe.hpp"
#include "pipe/api.hpp"
#include "plugins.hpp"
#include "request_store.hpp"
#include "request_view.hpp"
#include "trace.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_core_main_interpreter, module, py::mod_gil_not_used()) {
  module.doc() = "The C++ core of HAMi. Use it through the package `hami`.";
  module.attr("__version__") = HAMI_VERSION;
  hami::bind::register_translators();
  hami::bind::make_greenlet_names();
  hami::bind::install_hooks();
  hami::register_core();
  hami::bind::register_logging(module);
  hami::bind::register_core_objects(module);
  hami::bind::register_request_store(module);
  hami::bind::register_views(module);
  hami::bind::register_parts(module);
  hami::bind::register_backend_services(module);
  hami::bind::register_backend_classes(module);
  hami::bind::register_plugins(module);
  hami::bind::register_config(module);
  hami::bind::register_expressions(module);
  hami::bind::register_pipe(module);
  hami::bind::register_native_values(module);
  hami::bind::register_trace(module);
  hami::bind::register_failing_allocations(module);
  module.def("near_names",
             [](const std::string& name, const std::vector<std::string>& candidates, std::size_t limit) {
    return hami::near_names(name, candidates, limit);
  }, py::arg("name"), py::arg("candidates"), py::arg("limit") = 3,
             "Return at most `limit` candidates that are spelled like `name`, nearest first.");
  module.def("did_you_mean", &hami::did_you_mean, py::arg("near"), py::arg("quoted") = false,
             "Return a \"did you mean\" hint for an error message; empty if `near` is empty.");
}

// Rejects sub-interpreters. CPython before 3.12 does not check that a module supports them, and pybind11 would hang.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit__core_main_interpreter();
  PyErr_SetString(PyExc_ImportError, "module hami._core does not support loading in subinterpreters");
  return nullptr;
}
