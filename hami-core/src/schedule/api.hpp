// The room `schedule`. Queues, batching and dispatch: the classes Batching, InstanceDispatcher and DagDispatcher.
#pragma once

#include "registry/api.hpp"
#include "schedule/graph.hpp"

namespace hami {

void register_scheduling(Registry& registry);

}  // namespace hami
