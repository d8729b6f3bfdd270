// PipeShutdown: the list of abandoned backends.
#include "backend/pipe_shutdown.hpp"

#include <utility>

namespace hami {

void PipeShutdown::report_abandoned(std::string what) {
  MutexLock lock(mutex_);
  abandoned_.push_back(std::move(what));
}

std::vector<std::string> PipeShutdown::take_abandoned() {
  MutexLock lock(mutex_);
  return std::exchange(abandoned_, {});
}

}  // namespace hami
