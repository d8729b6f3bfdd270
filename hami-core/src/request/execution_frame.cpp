// Running: the batches that a thread is in.
#include "request/execution_frame.hpp"

#include <algorithm>

namespace hami {

thread_local Running* Running::innermost_ = nullptr;

// Of the outer ones too: a wait that begins here is one in each of them.
void Running::note_needs() {
  for (Running* here = this; here && !std::exchange(here->noted_, true); here = here->outer_)
    for (const Request* request : here->batch_) {
      Need need = need_of(*request);
      if (!need.ask) continue;
      if (std::vector<Need>& known = here->needs_; known.empty() || known.back().ask.get() != need.ask.get())
        known.push_back(std::move(need));
      else  // of one call, whose last request counts
        known.back().until = std::max(known.back().until, need.until);
    }
}

Nanoseconds Running::deadline() noexcept {
  if (!innermost_ || innermost_->batch_.empty()) return kNever;
  Nanoseconds last = 0;
  for (const Request* request : innermost_->batch_) last = std::max(last, request->deadline);
  return last;
}

}  // namespace hami
