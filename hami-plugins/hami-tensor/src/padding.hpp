// Pads tensors, cuts off their padding, and compares results.
#pragma once

#include "tensors.hpp"

namespace hami_tensor {

inline constexpr std::int64_t kNoAxis = -1;

// A tensor whose `axis` is `length` long: the elements of `tensor`, then `value`, the bytes of one element.
hami::Tensor padded(const hami::Tensor& tensor, std::size_t axis, std::int64_t length, const std::string& value);

// The first `length` positions of an axis, as a view; the tensor itself for kNoAxis.
hami::Tensor cut(const hami::Tensor& tensor, std::int64_t axis, std::int64_t length);

// The largest difference of two tensors, relative to the largest number of `alone`; 0 for equal ones, infinite for other shapes or
// types, and for numbers that are not floating-point.
double difference(const hami::Tensor& alone, const hami::Tensor& other);

}  // namespace hami_tensor
