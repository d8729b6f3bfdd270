// Reads the option that OnnxModel sets.
#include "plan.hpp"

#include <map>

namespace hami_onnx {
namespace {

std::vector<int> axes_of(const hami::Value& list) {
  std::vector<int> axes;
  for (const hami::Value& axis : list.as_list()) axes.push_back(static_cast<int>(axis.as_int()));
  return axes;
}

std::vector<std::string> texts_of(const hami::Value& list) {
  std::vector<std::string> texts;
  for (const hami::Value& text : list.as_list()) texts.emplace_back(text.as_text());
  return texts;
}

Settings settings_of(const hami::Value& dict) {
  Settings settings;
  for (const auto& [key, value] : dict.as_dict()) {
    if (key == "library") settings.library = value.as_text();
    if (key == "model") settings.model = value.as_text();
    if (key == "threads") settings.threads = value.as_int();
    if (key == "busy_threads") settings.busy_threads = value.as_int();
    if (key == "version") settings.version = value.as_text();
    if (key == "plugin_providers") settings.providers = texts_of(value);
    if (key == "cpu_fallback") settings.cpu_fallback = value.as_bool();
    if (key == "memory") settings.memory = value.as_text();
    if (key == "freed") settings.freed = texts_of(value);
    if (key == "profile") settings.profile = value.as_text();
    if (key == "custom_operators") settings.custom_operators = texts_of(value);
  }
  return settings;
}

}  // namespace

Plan Plan::of(const hami::Dict& options) {
  const std::optional<hami::Value> found = options.find("onnx_plan");
  if (!found)
    fail(
        HAMI_FAILED_PRECONDITION,
        "the model is not open: OnnxModel of hami-onnx opens it, which could not be loaded, or which the brackets replace; "
        "remove the brackets, or see `hami doctor`");
  std::map<std::string, hami::Value> entries;
  for (auto& [key, value] : found->as_dict()) entries[key] = std::move(value);
  Plan plan;
  plan.is_native = entries["native"].as_bool();
  if (!plan.is_native) return plan;
  plan.settings = settings_of(entries["settings"]);
  plan.joins = entries["joins"].as_bool();
  plan.fixed = entries["fixed"].as_int();
  plan.runs_one = entries["runs_one"].as_bool();
  plan.input_axes = axes_of(entries["input_axes"]);
  plan.output_axes = axes_of(entries["output_axes"]);
  plan.lone_axes = axes_of(entries["lone_axes"]);
  plan.chosen = texts_of(entries["inputs"]);
  plan.casts = entries["casts"].as_bool();
  plan.why_not_joined = entries["why"].as_text();
  plan.stops = entries["stops"].as_bool();
  plan.watch_every = entries["watch_every"].as_int();
  return plan;
}

}  // namespace hami_onnx
