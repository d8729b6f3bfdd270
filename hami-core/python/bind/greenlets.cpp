// Which greenlet of a thread the core has called.
#include "greenlets.hpp"

#include <pybind11/pybind11.h>

#include "value/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

namespace py = pybind11;

// Whether code of the program that the core called is running on this thread; and its greenlet, for comparison only.
// Null: the package was not imported.
thread_local bool runs_program_code = false;
thread_local PyObject* entered_greenlet = nullptr;

py::handle greenlet_name, getcurrent_name, parent_name, gevent_name, hub_name;

constexpr const char* kInstead =
    "run the call in another thread, with gevent.get_hub().threadpool.apply(pipe, (request,))";

// Null if the program has not imported it. Without a GIL, another thread may remove the module meanwhile.
py::object module_of(py::handle name) noexcept {
#ifdef Py_GIL_DISABLED
  PyObject* module = nullptr;
  PyDict_GetItemRef(PyImport_GetModuleDict(), name.ptr(), &module);
  return py::reinterpret_steal<py::object>(module);
#else
  return py::reinterpret_borrow<py::object>(PyDict_GetItemWithError(PyImport_GetModuleDict(), name.ptr()));
#endif
}

// sys.modules["greenlet"].getcurrent(), or null if the program has not imported the package.
py::object current_greenlet() noexcept {
  const py::object module = module_of(greenlet_name);
  if (!module) return {};
  PyObject* const found = PyObject_CallMethodNoArgs(module.ptr(), getcurrent_name.ptr());
  if (!found) PyErr_Clear();  // the package is being imported, or out of memory
  return py::reinterpret_steal<py::object>(found);
}

// Null for none, and where an attribute is missing.
py::object parent_of(const py::object& greenlet) noexcept {
  auto parent = py::reinterpret_steal<py::object>(PyObject_GetAttr(greenlet.ptr(), parent_name.ptr()));
  if (!parent) PyErr_Clear();
  return parent && parent.is_none() ? py::object() : parent;
}

}  // namespace

void make_greenlet_names() {
  greenlet_name = interned("greenlet");
  getcurrent_name = interned("getcurrent");
  parent_name = interned("parent");
  gevent_name = interned("gevent.hub");
  hub_name = interned("Hub");
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
  return current.ptr() == entered_greenlet || (!entered_greenlet && !parent_of(current));
}

void check_greenlet() {
  if (on_entered_greenlet()) return;
  throw Error(
      ErrorCode::kReentrantCall,
      std::string("another greenlet of this thread is inside a backend or a callback that HAMi called; ") + kInstead);
}

// The greenlets of a hub descend from it. The main greenlet of a thread does not, nor do workers of gevent's thread pool
// and the greenlets in which SQLAlchemy runs synchronous code: nothing but their own thread waits for them.
bool may_block() noexcept {
  const py::object gevent = module_of(gevent_name);
  if (!gevent) return true;
  const auto hub = py::reinterpret_steal<py::object>(PyObject_GetAttr(gevent.ptr(), hub_name.ptr()));
  if (!hub) PyErr_Clear();  // the package is being imported
  if (!hub || !PyType_Check(hub.ptr())) return true;
  for (py::object greenlet = current_greenlet(); greenlet; greenlet = parent_of(greenlet))
    if (PyObject_TypeCheck(greenlet.ptr(), reinterpret_cast<PyTypeObject*>(hub.ptr()))) return false;
  return true;
}

void check_may_block() {
  check_greenlet();
  if (may_block()) return;
  throw Error(ErrorCode::kReentrantCall,
              std::string("a call of HAMi in a greenlet would block the other greenlets of its thread; ") + kInstead);
}

}  // namespace hami::bind
