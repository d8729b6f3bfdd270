// ExecutionFrame: dependencies and deadlines of the batches that a thread runs.
#include "request/execution_frame.hpp"

#include <algorithm>
#include <new>

namespace hami {

thread_local ExecutionFrame* ExecutionFrame::innermost_ = nullptr;

// Records those of the outer frames first: a wait that starts here blocks each of them.
void ExecutionFrame::record_dependencies() {
  if (recorded_) return;
  if (outer_) outer_->record_dependencies();
  std::vector<Dependency> known;
  for (const Request* request : batch_) {
    Dependency dependency = dependency_of(*request);
    if (!dependency.token) continue;
    if (known.empty() || known.back().token.get() != dependency.token.get())
      known.push_back(std::move(dependency));
    else  // requests of one call: the latest deadline counts
      known.back().until = std::max(known.back().until, dependency.until);
  }
  dependencies_ = std::move(known);
  recorded_ = true;
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

std::uint8_t ExecutionFrame::priority() noexcept {
  std::uint8_t highest = 0;
  if (innermost_)
    for (const Request* request : innermost_->batch_) highest = std::max(highest, request->priority);
  return highest;
}

}  // namespace hami
