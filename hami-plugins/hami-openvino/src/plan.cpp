// Reads the option that CheckModel sets.
#include "plan.hpp"

namespace hami_openvino {
namespace {

std::vector<std::string> names_of(const hami::Value& list) {
  std::vector<std::string> names;
  for (const hami::Value& name : list.as_list()) names.emplace_back(name.as_text());
  return names;
}

std::map<std::string, int> axes_of(const hami::Value& dict) {
  std::map<std::string, int> axes;
  for (const auto& [name, axis] : dict.as_dict()) axes[name] = static_cast<int>(axis.as_int());
  return axes;
}

}  // namespace

Plan Plan::of(const hami::Dict& options) {
  Plan plan;
  const std::optional<hami::Value> found = options.find("openvino_plan");
  if (!found) return plan;
  for (const auto& [key, value] : found->as_dict()) {
    if (key == "inputs") plan.inputs = names_of(value);
    if (key == "outputs") plan.outputs = names_of(value);
    if (key == "why") plan.why = value.as_text();
    if (key == "input_axes") plan.input_axes = axes_of(value);
    if (key == "output_axes") plan.output_axes = axes_of(value);
    if (key == "rows" && value.as_text() == "independent") plan.rows = Rows::kIndependent;
    if (key == "rows" && value.as_text() == "mixes") plan.rows = Rows::kMix;
  }
  return plan;
}

std::string Plan::fingerprint() const {
  std::string text;
  for (const std::string& name : inputs) text += '\n' + name;
  text += "\n->";
  for (const std::string& name : outputs) text += '\n' + name;
  for (const auto& [name, axis] : input_axes) text += '\n' + name + '=' + std::to_string(axis);
  for (const auto& [name, axis] : output_axes) text += '\n' + name + '=' + std::to_string(axis);
  return text;
}

}  // namespace hami_openvino
