// Looking again and again for a moment before going to sleep: to wake a sleeping core costs more than most hand-offs take.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>

namespace hami {

// How long one kind of wait may look: longer when that has found something lately, next to nothing when not.
class Spin {
 public:
  // Never looks where the thread that makes it may use one core only.
  Spin() noexcept : several_cores_(cores() > 1) {}

  // True if `ready` became true.
  template <class Ready>
  bool until(Ready ready) noexcept {
    if (!several_cores_) return false;
    const int usual = looks_.load(std::memory_order_relaxed);
    const bool tries = usual < kMost && tries_.fetch_add(1, std::memory_order_relaxed) % kTries == kTries - 1;
    const int most = tries ? kMost : usual;
    for (int i = 0; i < most; ++i) {
      if (ready()) {
        looks_.store(std::min(2 * most, kMost), std::memory_order_relaxed);
        return true;
      }
      pause();
    }
    if (!tries) looks_.store(std::max(most / 2, kLeast), std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr int kMost = 4096;  // longer than waking a sleeping core takes: two sides that sleep never meet
  static constexpr int kLeast = 32;
  static constexpr unsigned kTries = 64;  // every so many waits it looks for long, whatever the last ones found

  static int cores() noexcept {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 2;
  }
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const bool several_cores_;
  std::atomic<int> looks_{kMost};
  std::atomic<unsigned> tries_{0};
};

}  // namespace hami
