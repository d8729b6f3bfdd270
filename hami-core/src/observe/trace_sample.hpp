// Which requests a trace records with all their steps.
//
// A trace that waits for a slow request is always on and must cost little. It records the steps of at most kSampledRequests
// in each period of its writer, and of the other requests only those that were slow, without their steps. Any other trace
// records the steps of every request. All of this is for while a trace is active.
#pragma once

#include <time.h>

#include <atomic>

#include "base/clock.hpp"

namespace hami::trace {

inline constexpr int kSampledRequests = 8;  // in 4 ms; two thousand requests in a second cost less than 1 % of a core

namespace detail {
inline std::atomic<bool> sampling{false};
inline std::atomic<int> sampled_requests{kSampledRequests};
inline std::atomic<int> left_in_period{0};
inline std::atomic<Nanoseconds> slow{kNever};

inline constexpr Nanoseconds kCoarse = 20'000'000;  // the coarse clock is at most one tick of the kernel, 10 ms, behind
inline Nanoseconds coarse_now() noexcept {
  timespec moment{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &moment);
  return Nanoseconds{moment.tv_sec} * 1'000'000'000 + moment.tv_nsec;
}
}  // namespace detail

inline bool is_sampling() noexcept { return detail::sampling.load(std::memory_order_relaxed); }
// Whether to record the steps of a new request.
inline bool samples_request() noexcept {
  return !is_sampling() || (detail::left_in_period.load(std::memory_order_relaxed) > 0 &&
                            detail::left_in_period.fetch_sub(1, std::memory_order_relaxed) > 0);
}
// Whether to record a step of the current thread that names no request: inside a slice that is recorded.
bool samples_step() noexcept;
// Whether a request that began at this moment was slow. Of most requests the coarse clock, which costs a fifth, says that it
// was not.
inline bool is_slow_since(Nanoseconds began) noexcept {
  const Nanoseconds slow = detail::slow.load(std::memory_order_relaxed);
  return slow != kNever && detail::coarse_now() - began >= slow - detail::kCoarse && now() - began >= slow;
}

// For the recorder.
inline void begin_period() noexcept {
  detail::left_in_period.store(detail::sampled_requests.load(std::memory_order_relaxed), std::memory_order_relaxed);
}
inline void begin_sampling(bool samples, Nanoseconds slow) noexcept {
  detail::sampling.store(samples, std::memory_order_relaxed);
  detail::slow.store(slow, std::memory_order_relaxed);
  begin_period();
}

}  // namespace hami::trace
