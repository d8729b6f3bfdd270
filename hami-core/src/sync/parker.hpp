// A thread that sleeps until something is done. Of several that are woken together each wakes two others before it does anything
// else, so that whoever brought what they wait for makes one system call and goes on.
#pragma once

#include <array>
#include <vector>

#include "base/counted.hpp"
#include "sync/waiting.hpp"
#include "base/mutex.hpp"

namespace hami {

class Parker {
 public:
  // Lives as long as its owner.
  struct Entry {
    Ref<Counted> owner;
    Parker* parker = nullptr;
  };

  Parker() = default;
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  mutable Mutex mutex;

  // As wait_for.
  template <class Ready, class Look>
  bool wait(Nanoseconds until, Ready ready, Look look) {
    const bool may_leave = may_be_interrupted();  // a signal's handler may take any time
    Others others;
    // The language's lock is taken back after it was asked for the last time.
    const auto asked = [&] {
      const bool is_ready = ready();
      parked_ = !is_ready && !may_leave && (until == kNever || now() < until);
      if (!parked_) wake_others(others);
      return is_ready;
    };
    try {
      if (wait_for(mutex, changed_, until, asked, look)) return true;
    } catch (...) {
      leave(others);
      throw;
    }
    leave(others);
    return false;
  }

  // Under the mutex. True: it sleeps, and once it is woken nothing holds it up, so that it may be among those of wake_all.
  bool parked() const noexcept { return parked_; }

  void wake() noexcept { changed_.notify_all(); }
  // Wakes them without a mutex held: the first here, the others by each other. `all` is empty then.
  static void wake_all(std::vector<Entry>& all) noexcept;

 private:
  using Others = std::array<Entry, 2>;

  // False: it does not sleep any more, and wakes nobody.
  bool delegate_wakeups(const Others& others) noexcept;
  void leave(Others& others) noexcept;
  void wake_others(Others& others) noexcept;  // under the mutex; they stay until the caller lets them go

  CondVar changed_;
  bool parked_ HAMI_GUARDED_BY(mutex) = false;
  Others others_ HAMI_GUARDED_BY(mutex);  // to be woken by this one; only while it is asleep
};

}  // namespace hami
