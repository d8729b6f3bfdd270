// plan_pipe: a configuration becomes a plan, with an explanation of it, or all its errors. Nothing is built.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/api.hpp"
#include "lang/api.hpp"

namespace hami {

// PipeConfig: a pipe's configuration as the core accepts it: nodes and their keys, independent of their source.
struct PipeConfig {
  struct Section {
    std::string name;
    std::vector<std::pair<std::string, Value>> keys;  // a sub-table [node.X] is flattened to "X.key"
  };
  std::vector<Section> nodes;
  Section global;
  std::optional<std::string> entrypoint;
  std::optional<std::string> dag_entrypoint;
  std::map<std::string, std::string> providers;
  // A section and a key of it. The section of top-level keys is "".
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::string> where;    // "pipeline.toml:7", if known
  std::map<Key, std::string> folders;  // of the file that contains the value: paths in it are relative to that
  std::set<Key> referenced;            // used already, in the values of other keys
  // What to write instead of a key that nothing uses; empty: unknown.
  std::function<std::string(const std::string& key)> advice;
  std::set<Key> unknown;  // given, but with values that could not be determined; that error was reported
  std::string file;       // that it was read from; empty: it was given as an expression or a dict
};

// Explanation: every backend of every node of a configuration, and the source of each parameter's value.
struct ExplainedParam {
  enum class From { kExpression, kParent, kNode, kGlobal, kGenerated, kDefault };
  std::string name;
  Value value;
  std::string text;  // in its unit
  From from = From::kDefault;
  std::string key;  // of the node or of [global]
  ParamType type = ParamType::kStr;
};

struct ExplainedBackend {
  std::string name;   // as written
  std::string cls;    // the class: differs from `name` for an alias
  std::string owner;  // the distribution
  std::size_t depth;  // of nested brackets
  std::vector<ExplainedParam> params;
  bool schedules = false;  // as BackendClass
  bool makes_copies = false;
  bool uses_python = false;
  bool is_absorbed = false;  // the backend before it, in the same brackets, does its work
};

struct Explanation {
  // The backends of one node's init expression, or of the entrypoint, in written order.
  struct Part {
    std::string expression;
    std::string key;  // the key of the expression; empty: it is the default
    std::vector<ExplainedBackend> backends;

    // What a scheduling parameter that is a word, or 0, stands for.
    void settle(const std::string& name, const Value& value) {
      for (ExplainedBackend& backend : backends)
        for (ExplainedParam& param : backend.params)
          if (backend.schedules && param.name == name &&
              (param.value.kind() != Kind::kInt || param.value.as_int() == 0)) {
            param.value = value;
            param.text = show_value(param.type, value);
          }
    }
  };
  std::vector<Part> nodes;  // in the order of the configuration
  Part entry;

  Part* part = nullptr;  // the part that is being planned
};

// plan_pipe: from configuration to plan. Checks every name, bracket and parameter and finds all errors in one run; builds
// nothing.
inline constexpr const char* kDefaultNodeEntrypoint =
    "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]";
inline constexpr const char* kDefaultEntrypoint = "Forward[node.{node_name}]";
inline constexpr const char* kDefaultDagEntrypoint = "DagDispatcher";

struct PipePlan {
  std::vector<std::pair<std::string, Plan>> nodes;
  Plan entry;
  GraphSpec graph;
};

// Returns the plan and all errors of the configuration; use the plan only if there are none. The explanation, if requested,
// is filled as far as the configuration could be understood.
std::pair<PipePlan, std::vector<Error>> plan_pipe(const PipeConfig& config, Explanation* explanation = nullptr);

}  // namespace hami
