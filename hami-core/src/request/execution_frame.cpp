// ExecutionFrame: dependencies and deadlines of the batches that a thread runs.
#include "request/execution_frame.hpp"

#include <algorithm>
#include <new>

namespace hami {

thread_local ExecutionFrame* ExecutionFrame::innermost_ = nullptr;

// Records those of the outer frames too: a wait that starts here blocks each of them.
void ExecutionFrame::record_dependencies() {
  for (ExecutionFrame* here = this; here && !std::exchange(here->recorded_, true); here = here->outer_)
    for (const Request* request : here->batch_) {
      Dependency dependency = dependency_of(*request);
      if (!dependency.token) continue;
      if (std::vector<Dependency>& known = here->dependencies_;
          known.empty() || known.back().token.get() != dependency.token.get())
        known.push_back(std::move(dependency));
      else  // requests of one call: the latest deadline counts
        known.back().until = std::max(known.back().until, dependency.until);
    }
}

void ExecutionFrame::begin_completion() noexcept {
  try {
    record_dependencies();
  } catch (const std::bad_alloc&) {  // a deadlock cycle through this thread may not be detected
  }
  batch_ = Batch(nullptr, 0);
}

Nanoseconds ExecutionFrame::deadline() noexcept {
  if (!innermost_ || innermost_->batch_.empty()) return kNever;
  Nanoseconds last = 0;
  for (const Request* request : innermost_->batch_) last = std::max(last, request->deadline);
  return last;
}

}  // namespace hami
