// wait_for: the one loop around a condition variable. It releases a language's global lock and ends when the user interrupts.
#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "sync/blocking.hpp"

namespace hami {

// How often an interruptible wait checks for Ctrl-C.
inline constexpr Nanoseconds kInterruptPoll = 50'000'000;
// A moment that is always past: for calls that must not wait.
inline constexpr Nanoseconds kNoWait = 0;

// On the stack of a thread that other threads rely on to be prompt: the callbacks that it runs must not wait for capacity.
class NoWaitScope {
 public:
  NoWaitScope() noexcept : outer_(std::exchange(active_, true)) {}
  ~NoWaitScope() { active_ = outer_; }
  NoWaitScope(const NoWaitScope&) = delete;
  NoWaitScope& operator=(const NoWaitScope&) = delete;

  static bool active() noexcept { return active_; }

 private:
  const bool outer_;
  static inline thread_local bool active_ = false;
};

// Waits until `ready` returns true. `ready` runs under the mutex and may consume what it finds: it is not called again after
// it has returned true. Returns false if it is not true at `until`. Throws Error if interrupted. `spin` runs before the
// thread sleeps.
template <class Ready, class Spinner>
bool wait_for(Mutex& mutex, CondVar& changed, Nanoseconds until, Ready ready, Spinner spin) {
  for (;;) {
    {
      BlockingScope blocking;  // before the mutex, so that the global lock is taken back after the mutex is released
      spin();
      MutexLock lock(mutex);
      if (until == kNever && !may_be_interrupted()) {  // without a timer, which costs as much as the wait itself
        changed.wait(lock, ready);
        return true;
      }
      const Nanoseconds step = may_be_interrupted() ? std::min(until, now() + kInterruptPoll) : until;
      if (changed.wait_until(lock, step, ready)) return true;
    }
    if (now() >= until) return false;
    check_interrupt();
  }
}

template <class Ready>
bool wait_for(Mutex& mutex, CondVar& changed, Nanoseconds until, Ready ready) {
  return wait_for(mutex, changed, until, ready, [] {});
}

}  // namespace hami
