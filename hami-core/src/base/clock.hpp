// Monotonic time in nanoseconds, the same scale as Python's time.monotonic_ns().
#pragma once

#include <chrono>
#include <cstdint>

namespace hami {

using Nanoseconds = std::int64_t;
inline constexpr Nanoseconds kNever = INT64_MAX;

inline Nanoseconds now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline Nanoseconds from_milliseconds(double milliseconds) noexcept {
  if (milliseconds <= -9e12) return -kNever;
  return milliseconds >= 9e12 ? kNever : static_cast<Nanoseconds>(milliseconds * 1e6);
}

// `duration` from now; saturates at kNever.
inline Nanoseconds after(Nanoseconds duration) noexcept {
  const Nanoseconds start = now();
  return duration >= kNever - start ? kNever : start + duration;
}

inline std::chrono::steady_clock::time_point to_time_point(Nanoseconds moment) noexcept {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(moment));
}

}  // namespace hami
