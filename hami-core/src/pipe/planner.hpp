// From configuration to plan: every name, bracket and parameter checked, all mistakes found in one run, nothing made.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "value/error.hpp"
#include "pipe/explanation.hpp"
#include "pipe/pipe_config.hpp"
#include "backend/graph_spec.hpp"
#include "backend/plan.hpp"

namespace hami {

inline constexpr const char* kDefaultNodeEntrypoint =
    "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]";
inline constexpr const char* kDefaultEntrypoint = "Forward[node.{node_name}]";
inline constexpr const char* kDefaultDagEntrypoint = "DagDispatcher";

struct PipePlan {
  std::vector<std::pair<std::string, Plan>> nodes;
  Plan entry;
  GraphSpec graph;
};

// The plan, and all that is wrong with the configuration; use the plan only if nothing is. The explanation, if one is
// asked for, tells what could be understood either way.
std::pair<PipePlan, std::vector<Error>> plan_pipe(const PipeConfig& config, Explanation* explanation = nullptr);

}  // namespace hami
