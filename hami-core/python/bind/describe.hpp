// A pipe, or its configuration, as plain data: its nodes with their backends, parameters and edges.
#pragma once

#include <string>

#include "gil.hpp"
#include "pipe/api.hpp"

namespace hami::bind {

// Of dicts, lists, str, numbers, bools and None only.
py::dict description_of(const PipeState& pipe);
// The same of a configuration that is not built. Raises its errors.
py::dict description_of(const py::object& loaded);
// Such a description as a JSON object.
std::string to_json(const py::dict& described);

}  // namespace hami::bind
