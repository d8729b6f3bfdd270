// Conversion of numbers to the element type of an input, as the parameter `cast` allows it. hami_tensor.values has the same
// rules for engines in Python.
#pragma once

#include <hami/backend.hpp>
#include <string>

namespace hami_openvino {

// kExact: integers that the type has, and floats, which are rounded if the result is finite. kSafe: types that lose no value.
enum class Cast { kExact, kSafe, kNone };

// Reads the parameter; Error(HAMI_FAILED_PRECONDITION) for other texts than "exact", "safe" and "false".
Cast read_cast(const std::string& text);

// Returns the tensor as type `to`, contiguous. Error(HAMI_DATA_TYPE) names the first value that changes by more than
// rounding; `what` names the input.
hami::Tensor cast_exactly(const hami::Tensor& from, DLDataType to, const std::string& what);

// Whether a value is a number, or a list of values of which the first is one, also within nested lists.
bool is_plain(const hami::Value& value);

// Returns numbers as a tensor of int64, bool or float64. Error(HAMI_DATA_TYPE) for lists of unequal length.
hami::Tensor tensor_of_numbers(const hami::Value& value, const std::string& what);

}  // namespace hami_openvino
