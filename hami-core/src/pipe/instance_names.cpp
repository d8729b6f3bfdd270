// What is registered and called by name, read off the plans.
#include "pipe/instance_names.hpp"

#include <algorithm>

#include "base/near.hpp"
#include "lang/parse.hpp"
#include "backend/node_queue_name.hpp"

namespace hami {
namespace {

constexpr std::int64_t kAnyNumber = INT64_MAX;  // how many is known when they are made

// "<i>" as it is registered: no sign, no leading zero.
bool is_index_below(const std::string& text, std::int64_t count) {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) && std::stoll(text) < count;
}

}  // namespace

void InstanceNames::note(const Plan& plan, const NodeScope& node, const WaitLocation& place) {
  if (plan.cls->owner != "hami-core") return;
  const std::string& cls = plan.cls->name;
  if (cls == "Register") {
    nodes_.insert(node.name());
  } else if (cls == "InstancesRegister") {
    const Value* given = plan.params.find("instance_num");
    std::int64_t& count = counts_[node.name()];
    count = std::max(count, given ? given->as_int() : kAnyNumber);
  } else if (cls == "DagDispatcher") {
    for (const PipeConfig::Section& section : node.config().nodes) call("node." + section.name, place);
  } else if (cls == "Recv" || cls == "Send" || cls == "Observer") {
    const Value* given = plan.params.find("name");
    const auto queue = given ? node_queue_name(std::string(given->as_text())) : std::nullopt;
    if (!queue) return;
    if (!queue->instance.empty())
      call(queue->instance, place);
    else if (cls == "Recv")
      counts_[queue->node] = kAnyNumber;  // one more that serves the node
    else
      call("node." + queue->node, place);
  }
}

// As PipeContext::find has it. `<node>.queue.<i>` is registered by whoever opens that queue.
bool InstanceNames::is_registered(const std::string& name) const {
  constexpr std::string_view kNode = "node.";
  const bool has_prefix = name.rfind(kNode, 0) == 0;
  if (nodes_.count(name) || (has_prefix && nodes_.count(name.substr(kNode.size()))) || node_queue_name(name)) return true;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const auto found = counts_.find(name.substr(0, dot));
  return found != counts_.end() && is_index_below(name.substr(dot + 1), found->second);
}

// What a wrong name could have been: of many instances the first and the last.
std::vector<std::string> InstanceNames::examples() const {
  std::vector<std::string> names;
  for (const std::string& node : nodes_) names.push_back("node." + node);
  for (const auto& [node, count] : counts_) {
    names.push_back(node + ".0");
    if (count > 1 && count != kAnyNumber) names.push_back(node + "." + std::to_string(count - 1));
  }
  return names;
}

std::vector<Error> InstanceNames::missing() const {
  std::vector<Error> errors;
  std::vector<std::string> names;
  for (const Call& call : calls_) {
    if (is_registered(call.name)) continue;
    if (names.empty()) names = examples();
    const std::string headline =
        "instance \"" + call.name + "\" not found" + did_you_mean(near_names(call.name, names));
    const Source& source = *call.place.source;
    errors.emplace_back(ErrorCode::kNotFound, message_with_caret(headline, source.text, call.place.span, source.where, ""));
  }
  return errors;
}

}  // namespace hami
