// The log sink of the core in a Python process.
#include "logging.hpp"

#include "base/api.hpp"
#include "errors.hpp"
#include "gil.hpp"

namespace hami::bind {
namespace {

void log_to_python(const std::string& source, const std::string& message, int level) {
  if (!Py_IsInitialized() || finalizing()) return log_to_standard_error(source, message, level);
  const HoldGil gil;
  try {
    // A message may contain bytes of a path that are not UTF-8.
    const auto text = [](const std::string& bytes) {
      PyObject* const decoded =
          PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace");
      if (!decoded) throw_python_error();
      return py::reinterpret_steal<py::str>(decoded);
    };
    const py::object emit = py::module_::import("hami._runtime.logs").attr("emit");
    call_python(emit, text(source), text(message), py::int_(level));
  } catch (const py::error_already_set& failed) {
    if (!raise_later(failed)) log_to_standard_error(source, message, level);
  } catch (const std::exception&) {  // no memory
    PyErr_Clear();
    log_to_standard_error(source, message, level);
  }
}

}  // namespace

void register_logging(py::module_& module) {
  module.def("set_log_level", &set_log_level, py::arg("level"),
             "Set the lowest level that is logged. The environment variable HAMI_LOG overrides it.");
  set_log_sink(log_to_python);
}

}  // namespace hami::bind
