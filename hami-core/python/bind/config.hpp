// A configuration on its way from Python to the core, and what the core has to say of it.
#pragma once

#include <pybind11/pybind11.h>

#include "pipe/pipe_config.hpp"

namespace hami::bind {

namespace py = pybind11;

// What hami._config.reader.LoadedConfig holds.
PipeConfig config_of(const py::object& loaded);

void register_config(py::module_& module);

}  // namespace hami::bind
