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
  std::vector<HeldDependency> known;
  for (const Request* request : batch_)
    if (Dependency dependency = dependency_of(*request); dependency.token)
      known.push_back({std::move(dependency), request});
  dependencies_ = std::move(known);
  recorded_ = true;
}

void ExecutionFrame::begin_completion() noexcept {
  try {
    record_dependencies();
  } catch (const std::bad_alloc&) {  // a deadlock cycle through this thread may not be detected
  }
  batch_ = Batch(nullptr, 0);
  completes_ = true;
}

// A request whose batch still runs comes back: it was only lent.
void ExecutionFrame::passed_on(Batch batch) noexcept {
  for (ExecutionFrame* frame = innermost_; frame; frame = frame->outer_) {
    if (!frame->completes_ || frame->dependencies_.empty()) continue;
    const auto first = frame->dependencies_.begin();
    auto held = first;
    for (const Request* request : batch)
      if (held != frame->dependencies_.end() && held->request == request) ++held;
    if (held != first) frame->dependencies_.erase(first, held);
  }
}

Nanoseconds ExecutionFrame::deadline() noexcept {
  if (!innermost_ || innermost_->batch_.empty()) return kNever;
  Nanoseconds last = 0;
  for (const Request* request : innermost_->batch_) last = std::max(last, request->deadline);
  return last;
}

bool ExecutionFrame::is_cancelled() const noexcept {
  return std::all_of(batch_.begin(), batch_.end(), [](const Request* request) { return request->cancelled(); });
}

std::uint8_t ExecutionFrame::priority() noexcept {
  std::uint8_t highest = 0;
  if (innermost_)
    for (const Request* request : innermost_->batch_) highest = std::max(highest, request->priority);
  return highest;
}

}  // namespace hami
