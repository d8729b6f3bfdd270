// Backend classes written in Python, and the handles of all backend classes.
#pragma once

#include "backend/api.hpp"
#include "gil.hpp"

namespace hami::bind {

// hami._core.BackendClass: Python's handle of a backend class.
struct ClassHandle {
  ClassPtr cls;
};

void register_python_backends(py::module_& module);

}  // namespace hami::bind
