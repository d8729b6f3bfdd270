// Wakes each event loop once per batch of completions, after the last of them.
#pragma once

#include "gil.hpp"

namespace hami::bind {

struct PendingWakeups;

// Hooks of the core. The thread holds the GIL between the two calls.
void* begin_completion_batch() noexcept;
void end_completion_batch(void* token) noexcept;

// Runs `complete`, which calls into Python. Runs it a second time if an exception, possibly from a signal handler,
// ended the first run; so `complete` must be idempotent.
template <class Complete>
void complete_reliably(const char* what, Complete&& complete) noexcept {
  try {
    return complete();
  } catch (py::error_already_set& raised) {
    try {
      complete();
      if (raise_later(raised)) return;
    } catch (py::error_already_set& again) {
      again.discard_as_unraisable(what);
    }
    raised.discard_as_unraisable(what);
  }
}

// Calls completion_queue.wake() at the end of this thread's completion batch, or at once outside of one. Requires the
// GIL.
void wake_after_batch(py::handle completion_queue);

// Encloses code that may wait for an event loop that this thread is about to wake. Wakes the pending loops first;
// completions inside the scope wake their loops at once.
class FlushWakeupsScope {
 public:
  FlushWakeupsScope() noexcept;
  ~FlushWakeupsScope();
  FlushWakeupsScope(const FlushWakeupsScope&) = delete;
  FlushWakeupsScope& operator=(const FlushWakeupsScope&) = delete;

 private:
  PendingWakeups* suspended_;
};

}  // namespace hami::bind
