// usable_cores: the number of CPU cores on which the calling thread may run.
#pragma once

#include <sched.h>

namespace hami {

// 2 if the system does not say.
inline int usable_cores() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 2;
}

}  // namespace hami
