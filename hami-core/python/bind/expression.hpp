// Expressions as text and as Python data.
#pragma once

#include <pybind11/pybind11.h>

namespace hami::bind {

void register_expressions(pybind11::module_& module);

}  // namespace hami::bind
