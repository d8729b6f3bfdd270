// The handles of all backend classes.
#pragma once

#include "backend/api.hpp"
#include "gil.hpp"

namespace hami::bind {

// hami._core.BackendClass: Python's handle of a backend class.
struct ClassHandle {
  ClassPtr cls;
};

[[gnu::cold]] void register_backend_classes(py::module_& module);

}  // namespace hami::bind
