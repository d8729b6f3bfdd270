// Wakes each event loop once per batch of completions, after the last of them.
#pragma once

#include "gil.hpp"
#include "sync/api.hpp"

namespace hami::bind {

struct PendingWakeups;

// Hooks of the core. The thread holds the GIL between the two calls.
void begin_completion_batch(CompletionStorage& storage) noexcept;
void end_completion_batch(CompletionStorage& storage) noexcept;

// How long a completion waits for memory: 60 s on a thread of the core; `otherwise` on a thread of the program, which may have
// to free memory itself.
Nanoseconds memory_timeout(Nanoseconds otherwise) noexcept;

// Runs `complete`, which calls into Python. Runs it again until there is memory, and once more if another exception,
// possibly from a signal handler, ended it; so `complete` must be idempotent. False: there was no memory in time.
[[nodiscard]] bool complete_reliably(const char* what, Nanoseconds timeout, void (*complete)(void* data),
                                     void* data) noexcept;

template <class Complete>
bool complete_reliably(const char* what, Nanoseconds timeout, const Complete& complete) noexcept {
  const auto call = [](void* data) { (*static_cast<const Complete*>(data))(); };
  return complete_reliably(what, timeout, call, const_cast<Complete*>(&complete));
}

// Calls completion_queue.wake() at the end of this thread's completion batch, or at once outside of one. Requires the
// GIL. May throw outside of a batch.
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
