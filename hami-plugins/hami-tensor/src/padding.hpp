// Pads tensors, cuts off their padding, and compares results.
#pragma once

#include "tensors.hpp"

namespace hami_tensor {

inline constexpr std::int64_t kNoAxis = -1;

// A tensor whose `axis` is `length` long: the elements of `tensor`, then `value`, the bytes of one element.
hami::Tensor padded(const hami::Tensor& tensor, std::size_t axis, std::int64_t length, const std::string& value);

// The first `length` positions of an axis, as a view; the tensor itself for kNoAxis.
hami::Tensor cut(const hami::Tensor& tensor, std::int64_t axis, std::int64_t length);

// The bytes of one element that pads a tensor. Error(HAMI_REQUEST) if its type does not have this number.
std::string padding_bytes(const TensorItems& items, std::size_t index, double number, const std::string& taker);

// The tensors of a result; none if it does not consist of tensors in CPU memory.
std::optional<TensorItems> results(const hami::Dict& item, const std::string& taker);

struct PaddedAxes {
  std::vector<std::int64_t> axes;  // of each tensor of a result: the padded one, or kNoAxis
  std::string difference;          // why the results are not equal; empty: they are
};
// Compares results of the same form: of a request of `own` positions alone, and padded to `length`.
PaddedAxes compare(const TensorItems& alone, const TensorItems& with_padding, std::int64_t own, std::int64_t length,
                   double tolerance);

// The largest difference of two tensors, relative to the largest number of `alone`; 0 for equal ones, infinite for other shapes or
// types, and for numbers that are not floating-point.
double difference(const hami::Tensor& alone, const hami::Tensor& other);

}  // namespace hami_tensor
