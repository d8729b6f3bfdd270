// What backends do with each request, view["key"] above all, as slots of its Python type: the way through pybind11's tables
// takes five times as long as the access itself.
#pragma once

#include "gil.hpp"

namespace hami::bind {

// For the class DictView.
py::custom_type_setup view_slots();

}  // namespace hami::bind
