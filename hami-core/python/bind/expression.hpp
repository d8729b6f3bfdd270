// The parser of expressions for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace hami::bind {

[[gnu::cold]] void register_expressions(pybind11::module_& module);

}  // namespace hami::bind
