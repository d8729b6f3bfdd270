// PipeShutdown: the list of abandoned backends.
#include "backend/pipe_shutdown.hpp"

#include <new>
#include <utility>

namespace hami {

void PipeShutdown::report_abandoned(const std::string& name) noexcept {
  MutexLock lock(mutex_);
  try {
    abandoned_.push_back(name);
  } catch (const std::bad_alloc&) {
  }
}

std::vector<std::string> PipeShutdown::take_abandoned() {
  MutexLock lock(mutex_);
  return std::exchange(abandoned_, {});
}

}  // namespace hami
