// The room `container`. The built-in containers.
#pragma once

#include "container/forwarding.hpp"

namespace hami {

void register_containers(Registry& registry);

}  // namespace hami
