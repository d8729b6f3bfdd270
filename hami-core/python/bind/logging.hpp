// Log messages of the core become records of Python's `logging`.
#pragma once

#include <pybind11/pybind11.h>

namespace hami::bind {

// Adds `set_log_level` to the module, and makes the core log through hami._runtime.logs.
[[gnu::cold]] void register_logging(pybind11::module_& module);

}  // namespace hami::bind
