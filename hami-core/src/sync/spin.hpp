// Spin: checks a condition for a moment before the thread sleeps. Waking a sleeping core costs more than most hand-offs take.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/cores.hpp"

namespace hami {

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

}  // namespace hami
