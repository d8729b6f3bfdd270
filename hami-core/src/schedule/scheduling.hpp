// Registers the scheduling classes: Batching, InstanceDispatcher and DagDispatcher.
#pragma once

#include "registry/registry.hpp"

namespace hami {

void register_scheduling(Registry& registry);

}  // namespace hami
