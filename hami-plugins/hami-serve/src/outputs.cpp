// Finds the outputs of a request.
#include "outputs.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace hami_serve {
namespace {

const hami::Value* value_of(const Keys& keys, std::string_view name) noexcept {
  for (const auto& [key, value] : keys)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace

const hami::Value* output_value(const Model& model, const Keys& keys, std::string_view name) noexcept {
  const hami::Value* const result = value_of(keys, "result");
  if (!result || result->kind() == HAMI_DICT) return nullptr;
  const Spec* const spec = spec_of(model.outputs, name);
  if (const hami::Value* const own = value_of(keys, name); own && (spec || name == "result")) return own;
  return spec && model.outputs.size() == 1 ? result : nullptr;
}

bool is_declared(const Model& model, std::string_view name, std::string_view datatype) noexcept {
  const Spec* const spec = model.checks_outputs ? spec_of(model.outputs, name) : nullptr;
  return !spec || spec->datatype.empty() || spec->datatype == datatype;
}

const Datatype* datatype_of_output(const Model& model, std::string_view name, const hami::Tensor& tensor) noexcept {
  const Datatype* const type = datatype_of(tensor.dtype());
  if (!type || is_declared(model, name, type->name)) return type;
  const Datatype* const declared = datatype_of(spec_of(model.outputs, name)->datatype);
  const bool is_inside = declared && declared->is_converted() && !declared->is_bytes() &&
                         declared->type.code == type->type.code && declared->type.bits == type->type.bits;
  return is_inside ? declared : nullptr;
}

std::string bytes_of_bf16(const hami::Tensor& tensor) {
  constexpr std::uint16_t kNan = 0x7FC0;
  const char* source = static_cast<const char*>(tensor.view().data) + tensor.view().byte_offset;
  std::string bytes(tensor.count() * sizeof(std::uint16_t), '\0');
  for (std::size_t i = 0; i < tensor.count(); ++i) {
    float number = 0;
    std::uint32_t bits = 0;
    std::memcpy(&number, source + i * sizeof number, sizeof number);
    std::memcpy(&bits, &number, sizeof bits);
    const auto rounded = static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    const std::uint16_t half = std::isnan(number) ? kNan : rounded;
    std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
  }
  return bytes;
}

std::vector<std::string_view> output_names(const Model& model, const Inference& inference) {
  std::vector<std::string_view> names;
  for (const WantedOutput& each : inference.outputs) names.push_back(each.name);
  for (const Spec& each : model.outputs)
    if (inference.outputs.empty()) names.push_back(each.name);
  if (names.empty()) names.push_back("result");
  return names;
}

}  // namespace hami_serve
