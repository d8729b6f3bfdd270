// For tests: allocations of this module that fail.
#pragma once

#include <pybind11/pybind11.h>

namespace hami::bind {

// Registers `_fail_allocations` in development builds. Does nothing in a release.
[[gnu::cold]] void register_failing_allocations(pybind11::module_& module);

}  // namespace hami::bind
