// Compares what a row got alone with what it got in a batch.
#pragma once

#include <cstdint>
#include <string>

#include "element_types.hpp"

namespace hami_openvino {

// The largest difference between two rows of numbers.
struct Difference {
  double relative = 0;  // to the largest value of the row; infinite if NaN, infinities or integers differ
  double alone = 0;
  double together = 0;
};

// "is 0.5 alone and 0.7 in a batch of 8"
std::string show_difference(const Difference& difference, std::int64_t rows);

Difference largest_difference(const ElementType& type, const void* alone, const void* together, std::size_t count);

// The largest relative difference that rounding explains: eps * sqrt(terms of a sum) * sqrt(nodes in a row), at most
// 0.1. A sum of n terms that is rounded in another order differs by about sqrt(n) * eps, and the errors of nodes that
// follow each other add up in the same way. 0 for integers: they must be equal.
// `computes_in_16_bits`: the arithmetic of the model is bfloat16 or float16, for outputs of any type.
double tolerance(const ElementType& type, bool computes_in_16_bits);

}  // namespace hami_openvino
