// Outputs: the values of a completed request that an answer has.
#pragma once

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

}  // namespace hami_serve
