// The containers of LANGUAGE.md §2 that need no scheduler, by name in the registry.
#pragma once

#include "registry/registry.hpp"

namespace hami {

void register_containers(Registry& registry);

}  // namespace hami
