// Creates tensors of given numbers, and reads the numbers of a tensor.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "built.hpp"
#include "hami/elements.hpp"
#include "plugin/library.hpp"
#include "registry/api.hpp"
#include "value/error.hpp"
#include "value/tensor.hpp"

namespace hami::testing {

// Defines the backends of hami-tensor in this process. True, so that a constant of a test file can call it.
inline bool define_tensor_backends() {
  static const NativePlugin plugin = load_library(built("tensor_backends.so"), "hami-tensor");
  for (const ClassPtr& cls : plugin.classes) Registry::instance().define(cls);
  return true;
}

inline Tensor tensor_of(DLDataType type, Shape shape, const std::vector<double>& numbers) {
  const Tensor made = make_tensor(std::move(shape), type);
  REQUIRE(made->count() == numbers.size());
  REQUIRE(with_element(type, [&](auto element) {
    using E = decltype(element);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      E::store(made->data() + i * item_size(type), static_cast<typename E::number>(numbers[i]));
  }));
  return made;
}

inline std::vector<double> numbers_of(const Tensor& tensor) {
  const Tensor flat = contiguous(tensor);
  std::vector<double> numbers;
  REQUIRE(with_element(flat->dtype(), [&](auto element) {
    using E = decltype(element);
    for (std::size_t i = 0; i < flat->count(); ++i)
      numbers.push_back(static_cast<double>(E::load(flat->data() + i * item_size(flat->dtype()))));
  }));
  return numbers;
}

using Numbers = std::vector<double>;

// A view with the first two axes swapped.
inline Tensor transposed(const Tensor& tensor) {
  Shape shape = tensor->shape();
  Shape strides = tensor->strides();
  std::swap(shape.at(0), shape.at(1));
  std::swap(strides.at(0), strides.at(1));
  return make_view(tensor, shape, strides);
}

}  // namespace hami::testing
