// hami._core: table of contents.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/near.hpp"
#include "config.hpp"
#include "core_objects.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "lang/parse.hpp"
#include "pipe.hpp"
#include "pipe/pipe_state.hpp"
#include "python_backend.hpp"
#include "request_store.hpp"
#include "request_view.hpp"

namespace py = pybind11;

namespace {

// The canonical form of an expression; ConfigError with a caret if it is none.
std::string print_expression(const std::string& text, const std::string& where) {
  try {
    return hami::print(hami::parse(text));
  } catch (const hami::SyntaxError& error) {
    throw hami::Error(hami::ErrorCode::kConfig,
                      hami::message_with_caret(error.what(), text, error.span, where, error.hint));
  }
}

}  // namespace

PYBIND11_MODULE(_core, module, py::mod_gil_not_used()) {
  module.doc() = "The C++ core of HAMi. Use it through the package `hami`.";
  module.attr("__version__") = HAMI_VERSION;
  hami::bind::register_translators();
  hami::bind::install_hooks();
  hami::register_core();
  hami::bind::register_core_objects(module);
  hami::bind::register_request_store(module);
  hami::bind::register_views(module);
  hami::bind::register_python_backends(module);
  hami::bind::register_config(module);
  hami::bind::register_pipe(module);
  module.def("near_names",
             [](const std::string& name, const std::vector<std::string>& candidates, std::size_t limit) {
               return hami::near_names(name, candidates, limit);
             },
             py::arg("name"), py::arg("candidates"), py::arg("limit") = 3);
  module.def("did_you_mean", &hami::did_you_mean, py::arg("near"), py::arg("quoted") = false);
  module.def("print_expression", print_expression, py::arg("text"), py::arg("where") = "");
}
