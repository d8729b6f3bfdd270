// The hot operations of DictView, such as view["key"], as slots of its Python type. Dispatch through pybind11 would
// take several times as long as the access itself.
#pragma once

#include "gil.hpp"

namespace hami::bind {

// Installs the slots on the class DictView.
py::custom_type_setup view_slots();

}  // namespace hami::bind
