// The process: its forks, and the CPU cores that it may use.
#pragma once

#include <sched.h>

#include <atomic>

namespace hami {

// Detects forks: the child of a fork has none of the parent's threads.
// Increases by one in the child of each fork.
unsigned fork_generation() noexcept;

// An object that threads share, of which each process has its own. The child of a fork gets a new one: a thread that does not
// exist there may have held the object's mutex. Never destroyed, because threads may use it until the process ends.
template <class T>
class PerProcess {
 public:
  T& get() {
    Copy* found = current_.load(std::memory_order_acquire);
    if (found && found->generation == fork_generation()) return found->object;
    Copy* const fresh = new Copy;
    if (current_.compare_exchange_strong(found, fresh)) return fresh->object;
    delete fresh;
    return found->object;
  }
  // Null: this process has not called `get`. Never allocates.
  T* find() noexcept {
    Copy* const found = current_.load(std::memory_order_acquire);
    return found && found->generation == fork_generation() ? &found->object : nullptr;
  }

 private:
  struct Copy {
    const unsigned generation = fork_generation();
    T object;
  };
  std::atomic<Copy*> current_{nullptr};
};

// usable_cores: the number of CPU cores on which the calling thread may run.
// 2 if the system does not say.
inline int usable_cores() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 2;
}

}  // namespace hami
