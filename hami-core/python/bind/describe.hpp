// A pipe as plain data: its nodes with their backends, parameters and edges.
#pragma once

#include "gil.hpp"
#include "pipe/pipe_state.hpp"

namespace hami::bind {

// Of dicts, lists, str, numbers, bools and None only.
py::dict description_of(const PipeState& pipe);

}  // namespace hami::bind
