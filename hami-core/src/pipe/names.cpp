// Look-up of keys, and calls of instances that no class registers.
#include "pipe/names.hpp"

#include <algorithm>

namespace hami {

// ---- NodeScope: look-up, and which keys were used.

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

// ---- InstanceNames: collects names from plans and finds calls of names that no class registers.

namespace {

// An instance number: no sign, no leading zero.
bool is_index_below(const std::string& text, std::int64_t count) {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) && std::stoll(text) < count;
}

}  // namespace

// Passes on what a class declares, with the place of its use.
class InstanceNames::Declarations final : public NameDeclarations {
 public:
  Declarations(InstanceNames& names, const NodeScope& node, const SourcePlace& place)
      : names_(names), node_(node), place_(place) {}

  const std::string& node() const override { return node_.name(); }
  void register_node() override { names_.nodes_.insert(node_.name()); }
  void register_instances(const std::string& node, std::int64_t count) override {
    std::int64_t& known = names_.counts_[node];
    known = std::max(known, count);
  }
  void call(const std::string& name) override { names_.call(name, place_); }
  void call_all_nodes() override {
    for (const PipeConfig::Section& section : node_.config().nodes) call("node." + section.name);
  }

 private:
  InstanceNames& names_;
  const NodeScope& node_;
  const SourcePlace& place_;
};

void InstanceNames::note(const Plan& plan, const NodeScope& node, const SourcePlace& place) {
  if (!plan.cls->declare_names) return;
  Declarations declarations(*this, node, place);
  plan.cls->declare_names(plan, declarations);
}

// As InstanceTable::find does. `<node>.queue.<i>` is registered by the first backend that opens that queue.
bool InstanceNames::is_registered(const std::string& name) const {
  constexpr std::string_view kNode = "node.";
  const bool has_prefix = name.rfind(kNode, 0) == 0;
  if (nodes_.count(name) || (has_prefix && nodes_.count(name.substr(kNode.size()))) || node_queue_name(name))
    return true;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const auto found = counts_.find(name.substr(0, dot));
  return found != counts_.end() && is_index_below(name.substr(dot + 1), found->second);
}

// Names for suggestions: the first and the last of several instances.
std::vector<std::string> InstanceNames::examples() const {
  std::vector<std::string> names;
  for (const std::string& node : nodes_) names.push_back("node." + node);
  for (const auto& [node, count] : counts_) {
    names.push_back(node + ".0");
    if (count > 1 && count != NameDeclarations::kAnyCount) names.push_back(node + "." + std::to_string(count - 1));
  }
  return names;
}

std::vector<Error> InstanceNames::missing() const {
  std::vector<Error> errors;
  std::vector<std::string> names;
  for (const Call& call : calls_) {
    if (is_registered(call.name)) continue;
    if (names.empty()) names = examples();
    std::string headline = "instance \"" + call.name + "\" not found";
    if (errors.size() < kMaxSuggestions) headline += did_you_mean(near_names(call.name, names));
    const Source& source = *call.place.source;
    errors.emplace_back(ErrorCode::kNotFound,
                        message_with_caret(headline, source.text, call.place.span, source.where, ""));
  }
  return errors;
}

}  // namespace hami
