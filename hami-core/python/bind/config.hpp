// Converts a configuration from Python to the core, and checks and explains it without building a pipe.
#pragma once

#include <pybind11/pybind11.h>

#include "pipe/api.hpp"

namespace hami::bind {

namespace py = pybind11;

// Converts a hami._config.reader.LoadedConfig.
PipeConfig config_of(const py::object& loaded);

[[gnu::cold]] void register_config(py::module_& module);

}  // namespace hami::bind
