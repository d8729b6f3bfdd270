// A backend class written in Python, as the core runs it.
#pragma once

#include "gil.hpp"
#include "backend/backend_class.hpp"

namespace hami::bind {

// The handle of a backend class that Python holds.
struct ClassHandle {
  ClassPtr cls;
};

void register_python_backends(py::module_& module);

}  // namespace hami::bind
