// Native plugins as Python loads them.
#pragma once

#include "gil.hpp"

namespace hami::bind {

void register_plugins(py::module_& module);

}  // namespace hami::bind
