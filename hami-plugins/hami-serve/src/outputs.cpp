// Finds the outputs of a request.
#include "outputs.hpp"

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

std::vector<std::string_view> output_names(const Model& model, const Inference& inference) {
  std::vector<std::string_view> names;
  for (const WantedOutput& each : inference.outputs) names.push_back(each.name);
  for (const Spec& each : model.outputs)
    if (inference.outputs.empty()) names.push_back(each.name);
  if (names.empty()) names.push_back("result");
  return names;
}

}  // namespace hami_serve
