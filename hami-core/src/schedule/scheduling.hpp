// The scheduling names of LANGUAGE.md §2, by name in the registry.
#pragma once

#include "registry/registry.hpp"

namespace hami {

void register_scheduling(Registry& registry);

}  // namespace hami
