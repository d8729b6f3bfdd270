// Loads native plugins for Python.
#pragma once

#include "gil.hpp"

namespace hami::bind {

void register_plugins(py::module_& module);

}  // namespace hami::bind
