// Outputs: the values of a completed request that an answer has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answer.hpp"
#include "inference.hpp"
#include "models.hpp"

namespace hami_serve {

// Those that are wanted, else those of the model, else the result.
std::vector<std::string_view> output_names(const Model& model, const Inference& inference);

// The value of an output; null: there is none of this name, or it is inside of the result.
const hami::Value* output_value(const Model& model, const Keys& keys, std::string_view name) noexcept;

// Whether the model does not declare another datatype for it.
bool is_declared(const Model& model, std::string_view name, std::string_view datatype) noexcept;

// The datatype that a tensor has in an answer; null: native code does not render it, or the model declares another one.
const Datatype* datatype_of_output(const Model& model, std::string_view name, const hami::Tensor& tensor) noexcept;

// Numbers of float32 as BF16, rounded to nearest, ties to even.
std::string bytes_of_bf16(const hami::Tensor& tensor);

}  // namespace hami_serve
