// plan_pipe: plans every node's init expression, the entrypoint and the graph, and reports unused keys.
#include "pipe/planner.hpp"

#include <algorithm>
#include <utility>

#include "pipe/expr_planner.hpp"
#include "schedule/api.hpp"

namespace hami {
namespace {

constexpr std::size_t kMaxUnusedKeys = 20;  // reported for each node; the others are counted

class PipePlanner {
 public:
  PipePlanner(const PipeConfig& config, Explanation* explanation) : config_(config), global_(config) {
    planning_.explanation = explanation;
  }

  std::pair<PipePlan, std::vector<Error>> plan() {
    std::vector<NodeScope> scopes;
    scopes.reserve(config_.nodes.size());
    for (const PipeConfig::Section& section : config_.nodes) {
      scopes.emplace_back(global_, &section);
      plan_node(section, scopes.back());
    }
    const bool single = config_.nodes.size() == 1;
    NodeScope several(global_, nullptr);
    plan_entry(single ? scopes[0] : several, single);
    if (planning_.too_large) {  // unused keys are not known
      planning_.problems.push_back(*planning_.too_large);
      return {std::move(plan_), std::move(planning_.problems)};
    }
    while (propagate_not_idempotent()) continue;
    for (std::size_t i = 0; i < scopes.size(); ++i) report_unused(config_.nodes[i], scopes[i]);
    report_unused_global();
    for (const GraphProblem& problem : check_graph(plan_.graph)) report_graph(problem);
    if (global_.complete)  // otherwise the registered names are not known
      for (const Error& error : planning_.instances.missing()) planning_.problems.push_back(error);
    return {std::move(plan_), std::move(planning_.problems)};
  }

 private:
  void report(const std::string& headline, const std::string& key, const Value& value, const std::string& hint,
              const std::string& where) {
    Span span;
    const std::string text = show_setting(key, value, span);
    planning_.problems.emplace_back(ErrorCode::kConfig, message_with_caret(headline, text, span, where, hint));
  }

  void plan_node(const PipeConfig::Section& section, NodeScope& scope) {
    const NodeScope::Found own = scope.find("node_entrypoint");
    Source source{kDefaultNodeEntrypoint, scope.where(section.name, "backend")};
    if (own.value && own.value->kind() == Kind::kStr)
      source = {std::string(own.value->as_text()), scope.where(own.section, own.key),
                scope.folder(own.section, own.key)};
    if (planning_.explanation) {
      planning_.explanation->nodes.push_back({source.text, own.key, {}});
      planning_.explanation->part = &planning_.explanation->nodes.back();
    }
    if (!own.value && !scope.find("backend").value) {
      scope.give_up();
      report_table("the node has no backend", section.name, "add  backend = \"…\"", scope);
    } else if (!own.value || own.value->kind() == Kind::kStr) {
      plan_.nodes.emplace_back(section.name, ExprPlanner(planning_, scope, source, true).plan_text_of_source());
    } else {
      scope.give_up();
      if (!own.unknown)
        report(
            std::string("node_entrypoint must be a pipeline expression in quotes, got ") + kind_name(own.value->kind()),
            own.key, *own.value, "", scope.where(own.section, own.key));
    }

    GraphNode node;
    node.name = section.name;
    node.is_plain = !own.value;
    read_graph_keys(scope, node);
    plan_.graph.push_back(std::move(node));
  }

  void read_graph_keys(NodeScope& scope, GraphNode& node) {
    const auto read = [&](const char* key, auto take) {
      const NodeScope::Found found = scope.find_own(key);
      if (!found.value || found.unknown) return;
      try {
        take(*found.value);
      } catch (const Error& error) {
        report(error.message(), key, *found.value, "", scope.where(node.name, key));
      }
    };
    const auto text_of = [](const Value& value, const char* expected) {
      if (value.kind() == Kind::kStr) return std::string(value.as_text());
      throw Error(ErrorCode::kConfig, std::string(expected) + ", got " + show_value(value));
    };
    read("next", [&](const Value& value) {
      constexpr const char* kExpected = "next takes names of nodes, as \"b,c\" or [\"b\", \"c\"]";
      if (value.kind() == Kind::kList) {
        const ListObject& names = value.as_list();
        for (std::size_t i = 0; i < names.size(); ++i) node.next.push_back(text_of(names.at(i), kExpected));
      } else {
        node.next = parse_next(text_of(value, kExpected));
      }
    });
    read("map", [&](const Value& value) {
      node.map = parse_map(text_of(value, "map is one text, as \"det[result:data],src[data:image]\""));
    });
    for (auto [key, flag] : {std::pair("or", &node.is_or), std::pair("accept_skipped", &node.accepts_skipped)}) {
      ParamSpec spec;
      spec.name = key;
      spec.type = ParamType::kBool;
      read(key, [&, flag = flag](const Value& value) {
        *flag = coerce_param(spec, value, "node \"" + node.name + "\"").as_bool();
      });
    }
  }

  void plan_entry(NodeScope& scope, bool single) {
    std::string key = "entrypoint";
    std::optional<std::string> text = config_.entrypoint;
    if (!single && config_.dag_entrypoint) {
      key = "dag_entrypoint";
      text = config_.dag_entrypoint;
    }
    Source source{text.value_or(single ? kDefaultEntrypoint : kDefaultDagEntrypoint), text ? scope.where("", key) : "",
                  text ? scope.folder("", key) : ""};
    if (planning_.explanation) {
      planning_.explanation->entry = {source.text, text ? key : "", {}};
      planning_.explanation->part = &planning_.explanation->entry;
    }
    plan_.entry = ExprPlanner(planning_, scope, source, false).plan_text_of_source();
  }

  // A backend that forwards to an instance is only idempotent if the node of that instance is, which may be planned later.
  // Returns true if any plan changed.
  bool propagate_not_idempotent() {
    bool changed = false;
    for (auto& named : plan_.nodes) changed = clear_idempotent(named.second) || changed;
    return clear_idempotent(plan_.entry) || changed;
  }

  bool clear_idempotent(Plan& plan) {
    bool changed = false;
    bool safe = plan.traits.idempotent && idempotent_at(plan.instance);
    for (auto& phase : plan.phases)
      for (PlanItem& item : phase) {
        if (!item.plan) continue;
        changed = clear_idempotent(*item.plan) || changed;
        safe = safe && item.plan->traits.idempotent;
      }
    return std::exchange(plan.traits.idempotent, safe) != safe || changed;
  }

  bool idempotent_at(const std::string& instance) const {
    const auto is_of = [&](const std::string& node) {
      return instance == node || instance == "node." + node || instance.rfind(node + ".", 0) == 0;
    };
    return std::all_of(plan_.nodes.begin(), plan_.nodes.end(), [&](const auto& named) {
      return instance.empty() || !is_of(named.first) || named.second.traits.idempotent;
    });
  }

  // Skips nodes with an unknown backend: it may use the keys.
  void report_unused(const PipeConfig::Section& section, const NodeScope& scope) {
    if (scope.complete()) report_unused_keys(section, section.name, scope.used(), scope.known(), scope);
  }

  void report_unused_global() {
    if (global_.complete)
      report_unused_keys(config_.global, "global", global_.used, global_.known, NodeScope(global_, nullptr));
  }

  void report_unused_keys(const PipeConfig::Section& section, const std::string& name,
                          const std::set<std::string>& used, const std::set<std::string>& known,
                          const NodeScope& scope) {
    std::size_t unused = 0;
    for (const auto& [key, value] : section.keys) {
      if (used.count(key) || config_.referenced.count({name, key})) continue;
      if (++unused <= kMaxUnusedKeys) report_unused_key(section, key, value, known, scope.where(name, key));
    }
    if (unused > kMaxUnusedKeys)
      report_table("nothing uses " + std::to_string(unused - kMaxUnusedKeys) + " more of the " +
                       std::to_string(section.keys.size()) + " keys",
                   name, "", scope);
  }

  void report_unused_key(const PipeConfig::Section& section, const std::string& key, const Value& value,
                         const std::set<std::string>& known, const std::string& where) {
    const bool is_qualified = key.find('.') != std::string::npos;
    std::vector<std::string> candidates;
    for (const std::string& name : known)
      if (is_qualified || name.find('.') == std::string::npos) candidates.push_back(name);
    const bool of_nodes = &section == &config_.global && global_.own.count(key) && !global_.known.count(key);
    const bool of_file = key == "entrypoint" || key == "dag_entrypoint";
    std::string all = config_.advice ? config_.advice(key) : "";
    const bool elsewhere = of_nodes || of_file || !all.empty();
    const std::vector<std::string> near = elsewhere ? std::vector<std::string>() : near_names(key, candidates);
    if (of_nodes) all = "this key is only valid in a node, not in [global]";
    if (of_file) all = "this key belongs at the top of the file, before the first table";
    if (near.empty() && !is_qualified && !elsewhere)
      for (const std::string& name : candidates)
        if (name != "node_name") all += (all.empty() ? "the keys here are " : ", ") + name;
    report("nothing uses the key \"" + key + "\"" + did_you_mean(near, true), key, value, all, where);
  }

  void report_graph(const GraphProblem& problem) {
    for (const PipeConfig::Section& section : config_.nodes) {
      if (section.name != problem.node) continue;
      const NodeScope scope(global_, &section);
      for (const auto& [key, value] : section.keys) {
        if (key != problem.key) continue;
        return report(problem.headline, key, value, problem.hint, scope.where(section.name, key));
      }
      report_table(problem.headline, section.name, problem.hint, scope);  // the node has no such key
    }
  }

  void report_table(const std::string& headline, const std::string& node, const std::string& hint,
                    const NodeScope& scope) {
    const std::string table = "[" + node + "]";
    const Span whole{0, static_cast<std::uint32_t>(table.size())};
    planning_.problems.emplace_back(ErrorCode::kConfig,
                                    message_with_caret(headline, table, whole, scope.where(node, ""), hint));
  }

  const PipeConfig& config_;
  GlobalScope global_;
  Planning planning_;
  PipePlan plan_;
};

}  // namespace

std::pair<PipePlan, std::vector<Error>> plan_pipe(const PipeConfig& config, Explanation* explanation) {
  if (config.nodes.empty())
    return {PipePlan{}, std::vector<Error>{Error(ErrorCode::kConfig, "the configuration has no node")}};
  return PipePlanner(config, explanation).plan();
}

}  // namespace hami
