// Registers the containers.
#pragma once

#include "registry/registry.hpp"

namespace hami {

void register_containers(Registry& registry);

}  // namespace hami
