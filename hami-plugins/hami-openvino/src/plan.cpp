// Reads the option that CheckModel sets.
#include "plan.hpp"

namespace hami_openvino {
namespace {

std::vector<std::string> names_of(const hami::Value& list) {
  std::vector<std::string> names;
  for (const hami::Value& name : list.as_list()) names.emplace_back(name.as_text());
  return names;
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
    if (key == "rows" && value.as_text() == "independent") plan.rows = Rows::kIndependent;
    if (key == "rows" && value.as_text() == "mixes") plan.rows = Rows::kMix;
  }
  return plan;
}

std::string Plan::fingerprint() const {
  std::string text = '\n' + std::to_string(static_cast<int>(rows));
  for (const std::string& name : inputs) text += '\n' + name;
  text += "\n->";
  for (const std::string& name : outputs) text += '\n' + name;
  return text;
}

}  // namespace hami_openvino
