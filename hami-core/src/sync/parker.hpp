// Parker: parks a thread until a condition holds.
//
// Delegated wake-ups: of several threads that are woken together, each wakes two others before it does anything else, like a
// binary heap. The thread that completes a batch therefore makes one system call, and the rest of the wake-ups run in parallel.
#pragma once

#include <array>
#include <vector>

#include "base/counted.hpp"
#include "sync/waiting.hpp"

namespace hami {

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

  // True: the thread is parked and goes on at once when it is woken, so it may be an entry of `wake_all`.
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
