// hami._core.Pipe.
#pragma once

#include "gil.hpp"

namespace hami::bind {

void register_pipe(py::module_& module);

}  // namespace hami::bind
