// Loads a pipe with requests from threads of the core, for benchmarks in Python.
#pragma once

#include "gil.hpp"
#include "pipe/api.hpp"

namespace hami::bind {

// Runs the load while this thread stays interruptible, and returns what was measured.
py::dict run_load(const std::shared_ptr<PipeState>& pipe, const py::list& requests, LoadSpec spec);

}  // namespace hami::bind
