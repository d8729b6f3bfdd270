// How threads wait: they spin for a moment, sleep until a condition holds, and wake each other.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "sync/blocking.hpp"
#include "value/api.hpp"

namespace hami {

// Spin: checks a condition for a moment before the thread sleeps. Waking a sleeping core costs more than most hand-offs take.
// Adapts the number of checks of one kind of wait: more while they succeed, close to none while they do not.
class Spin {
 public:
  // Never spins where the constructing thread may run on one core only.
  Spin() noexcept : several_cores_(usable_cores() > 1) {}

  // True if `ready` became true.
  template <class Ready>
  bool until(Ready ready) noexcept {
    if (!several_cores_) return false;
    const int usual = checks_.load(std::memory_order_relaxed);
    const bool probes =
        usual < kMaxChecks && probes_.fetch_add(1, std::memory_order_relaxed) % kProbeEvery == kProbeEvery - 1;
    const int limit = probes ? kMaxChecks : usual;
    for (int i = 0; i < limit; ++i) {
      if (ready()) {
        checks_.store(std::min(2 * limit, kMaxChecks), std::memory_order_relaxed);
        return true;
      }
      pause();
    }
    if (!probes) checks_.store(std::max(limit / 2, kMinChecks), std::memory_order_relaxed);
    return false;
  }

 private:
  // Checks take longer than waking a sleeping core does; otherwise two threads that sleep would never meet awake.
  static constexpr int kMaxChecks = 4096;
  static constexpr int kMinChecks = 32;
  // Every 64th wait spins for the maximum, so that the limit recovers after a time of unsuccessful checks.
  static constexpr unsigned kProbeEvery = 64;

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const bool several_cores_;
  std::atomic<int> checks_{kMaxChecks};
  std::atomic<unsigned> probes_{0};
};

// wait_for: the one loop around a condition variable. It releases a language's global lock and ends when the user interrupts.
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

// Parker: parks a thread until a condition holds.
//
// Delegated wake-ups: of several threads that are woken together, each wakes two others before it does anything else, like a
// binary heap. The thread that completes a batch therefore makes one system call, and the rest of the wake-ups run in parallel.
class Parker {
 public:
  // A parked thread and the object that owns its parker, which it keeps alive.
  struct Entry {
    Ref<Counted> owner;
    Parker* parker = nullptr;
  };

  Parker() = default;
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  mutable Mutex mutex;  // guards the owner's condition and the members below

  // As wait_for, with this parker's mutex.
  template <class Ready, class Spinner>
  bool wait(Nanoseconds until, Ready ready, Spinner spin) {
    const bool may_leave = may_be_interrupted();  // a signal handler may take any time
    Delegated delegated;
    const auto check = [&] {
      mutex.assert_held();
      const bool is_ready = ready();
      // An interruptible thread never counts as parked: it could delay the threads that it has to wake.
      parked_ = !is_ready && !may_leave && (until == kNever || now() < until);
      if (!parked_) wake_delegated(delegated);
      return is_ready;
    };
    try {
      if (wait_for(mutex, changed_, until, check, spin)) return true;
    } catch (...) {
      leave(delegated);
      throw;
    }
    leave(delegated);
    return false;
  }

  // True: the thread is parked and continues at once when it is woken, so it may be an entry of `wake_all`.
  bool parked() const noexcept HAMI_REQUIRES(mutex) { return parked_; }

  void wake() noexcept { changed_.notify_all(); }
  // Wakes all entries: the first from here, each other one by an entry before it. Takes no mutex while it wakes. Leaves
  // `entries` empty.
  static void wake_all(std::vector<Entry>& entries) noexcept;

 private:
  using Delegated = std::array<Entry, 2>;

  // Makes this thread wake `entries` when it is woken. False: it is not parked any more.
  bool delegate_wakeups(const Delegated& entries) noexcept;
  void leave(Delegated& woken) noexcept;
  // Moves the delegated entries to `woken`, which the caller releases after the mutex.
  void wake_delegated(Delegated& woken) noexcept HAMI_REQUIRES(mutex);

  CondVar changed_;
  bool parked_ HAMI_GUARDED_BY(mutex) = false;
  Delegated delegated_ HAMI_GUARDED_BY(mutex);  // set only while the thread is parked
};

}  // namespace hami
