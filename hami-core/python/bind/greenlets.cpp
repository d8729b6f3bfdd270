// Which greenlet of a thread the core has called.
#include "greenlets.hpp"

#include <pybind11/pybind11.h>

#include "value/error.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

namespace py = pybind11;

// Whether code of the program that the core called is running on this thread; and its greenlet, for comparison only.
// Null: the package was not imported.
thread_local bool runs_program_code = false;
thread_local PyObject* entered_greenlet = nullptr;

py::handle greenlet_name, getcurrent_name;

// sys.modules["greenlet"].getcurrent(), or null if the program has not imported the package.
py::object current_greenlet() noexcept {
  PyObject* const module = PyDict_GetItemWithError(PyImport_GetModuleDict(), greenlet_name.ptr());
  if (!module) return {};
  PyObject* const found = PyObject_CallMethodNoArgs(module, getcurrent_name.ptr());
  if (!found) PyErr_Clear();  // the package is being imported, or out of memory
  return py::reinterpret_steal<py::object>(found);
}

bool is_main_greenlet(const py::object& greenlet) noexcept {
  const auto parent = py::reinterpret_steal<py::object>(PyObject_GetAttrString(greenlet.ptr(), "parent"));
  if (!parent) PyErr_Clear();
  return parent.is_none();
}

}  // namespace

void make_greenlet_names() {
  greenlet_name = interned("greenlet");
  getcurrent_name = interned("getcurrent");
}

ProgramCodeScope::ProgramCodeScope() noexcept : outer_active_(runs_program_code), outer_greenlet_(entered_greenlet) {
  runs_program_code = true;
  entered_greenlet = current_greenlet().ptr();
}

ProgramCodeScope::~ProgramCodeScope() {
  runs_program_code = outer_active_;
  entered_greenlet = outer_greenlet_;
}

bool on_entered_greenlet() noexcept {
  if (!runs_program_code) return true;
  const py::object current = current_greenlet();
  return current.ptr() == entered_greenlet || (!entered_greenlet && is_main_greenlet(current));
}

void check_greenlet() {
  if (on_entered_greenlet()) return;
  throw Error(ErrorCode::kReentrantCall,
              "another greenlet of this thread is inside a backend or a callback that HAMi called, and must return "
              "before this one can use HAMi; give a backend that switches greenlets thread = \"dedicated\"");
}

}  // namespace hami::bind
