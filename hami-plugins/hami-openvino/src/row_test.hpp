// Measures whether the rows of a model influence each other, for models about which nothing is proven.
#pragma once

#include <string>

#include "session_io.hpp"

namespace hami_openvino {

// Runs rows of different magnitude, sign and length, alone and together in two orders. `accepts` says whether OpenVINO
// accepts shapes of the inputs.
RowTest test_rows(Session& session, const std::function<bool(const std::vector<Shape>&)>& accepts);

}  // namespace hami_openvino
