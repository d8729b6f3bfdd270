// plan_pipe: from configuration to plan. Checks every name, bracket and parameter and finds all errors in one run; builds
// nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/graph_spec.hpp"
#include "backend/plan.hpp"
#include "pipe/explanation.hpp"
#include "pipe/pipe_config.hpp"
#include "value/error.hpp"

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

// Returns the plan and all errors of the configuration; use the plan only if there are none. The explanation, if requested,
// is filled as far as the configuration could be understood.
std::pair<PipePlan, std::vector<Error>> plan_pipe(const PipeConfig& config, Explanation* explanation = nullptr);

}  // namespace hami
