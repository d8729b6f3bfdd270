// Numbers in parameters and in keys of requests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sdk.hpp"

namespace hami_cuda {

// The finite numbers of a list, whose items may be texts of numbers, or of a tensor in CPU memory in row-major order;
// nullopt if the value is anything else.
std::optional<std::vector<double>> numbers_of(const hami::Value& value);

// "[1.5, 2]"
std::string show(const std::vector<double>& numbers);

}  // namespace hami_cuda
