// The one loop around a condition variable: lets a language's global lock go, and ends when the user wants the thread back.
#pragma once

#include <algorithm>

#include "sync/blocking.hpp"
#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace hami {

inline constexpr Nanoseconds kInterruptPoll = 50'000'000;
inline constexpr Nanoseconds kLongestWait = 3'600'000'000'000;  // C++ libraries reckon with other clocks, and overflow
// A moment that is always past: for calls that must not wait at all.
inline constexpr Nanoseconds kNoWait = 0;

// Waits until `ready`, which is asked under the mutex and may take what it finds there: it is not asked again once it has
// said true. False if it is not ready at `until`. Throws Error if interrupted.
// `look` is called before the thread goes to sleep.
template <class Ready, class Look>
bool wait_for(Mutex& mutex, CondVar& changed, Nanoseconds until, Ready ready, Look look) {
  for (;;) {
    {
      BlockingScope blocking;  // before the mutex: whatever it takes back is taken after the mutex is gone
      look();
      MutexLock lock(mutex);
      if (until == kNever && !may_be_interrupted()) {  // a timer that nobody needs costs as much as the wait
        changed.wait(lock, ready);
        return true;
      }
      const Nanoseconds step = std::min(until, now() + (may_be_interrupted() ? kInterruptPoll : kLongestWait));
      if (changed.wait_until(lock, to_time_point(step), ready)) return true;
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
