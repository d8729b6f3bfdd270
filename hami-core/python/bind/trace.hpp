// The timeline of the process, from Python.
#pragma once

#include <pybind11/pybind11.h>

namespace hami::bind {

[[gnu::cold]] void register_trace(pybind11::module_& module);

}  // namespace hami::bind
