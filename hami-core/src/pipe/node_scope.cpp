// NodeScope: look-up, and which keys were used.
#include "pipe/node_scope.hpp"

#include "lang/params.hpp"

namespace hami {

const std::string NodeScope::kNowhere;
const Value NodeScope::kUnknown;

bool NodeScope::is_unknown(const std::string& section, const std::string& key) const {
  return config().unknown.count({section, key}) > 0;
}

NodeScope::Found NodeScope::find_own(const std::string& key) {
  known_.insert(key);
  global_.own.insert(key);
  if (section_ && key == "node_name") return {&node_name_, name(), key};
  if (is_unknown(name(), key)) return {&kUnknown, name(), key, true};
  const auto found = values_.find(key);
  if (found == values_.end()) return {};
  used_.insert(key);
  return {found->second, name(), key};
}

NodeScope::Found NodeScope::find(const std::string& key) {
  const Found own = find_own(key);
  global_.known.insert(key);
  const auto found = global_.values.find(key);
  if (found != global_.values.end()) global_.used.insert(key);  // also if the node's own value hides it
  if (own.value) return own;
  if (is_unknown("global", key)) return {&kUnknown, "global", key, true};
  if (found == global_.values.end()) return {};
  return {found->second, "global", key};
}

std::vector<NodeScope::Found> NodeScope::find_all() {
  std::set<std::string> keys{"node_name"};
  for (const auto& entry : values_) keys.insert(entry.first);
  for (const auto& entry : global_.values) keys.insert(entry.first);
  std::vector<Found> all;
  for (const std::string& key : keys)
    if (const Found found = find(key); found.value && !found.unknown) all.push_back(found);
  return all;
}

std::string NodeScope::where(const std::string& section, const std::string& key) const {
  std::string text;
  if (section == "global")
    text = "[global]";
  else if (!section.empty())
    text = "node \"" + section + "\"";
  const auto found = config().where.find({section, key});
  if (found != config().where.end()) text += (text.empty() ? "" : ", ") + found->second;
  return text;
}

std::string NodeScope::folder(const std::string& section, const std::string& key) const {
  const auto found = config().folders.find({section, key});
  return found == config().folders.end() ? "" : found->second;
}

std::string show_setting(const std::string& key, const Value& value, Span& span) {
  span = {0, static_cast<std::uint32_t>(key.size())};
  return key + " = " + show_value(value);
}

}  // namespace hami
