// Loads native plugins for Python.
#pragma once

#include "gil.hpp"

namespace hami::bind {

[[gnu::cold]] void register_plugins(py::module_& module);

}  // namespace hami::bind
