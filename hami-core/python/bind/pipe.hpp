// hami._core.Pipe: a built pipe.
#pragma once

#include "gil.hpp"

namespace hami::bind {

[[gnu::cold]] void register_pipe(py::module_& module);

}  // namespace hami::bind
