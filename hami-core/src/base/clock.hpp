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

// Saturates at kNever.
inline Nanoseconds to_nanoseconds(double given) noexcept {
  if (given <= -9e18) return -kNever;
  return given < 9e18 ? static_cast<Nanoseconds>(given) : kNever;
}
inline Nanoseconds from_milliseconds(double milliseconds) noexcept { return to_nanoseconds(milliseconds * 1e6); }

// `duration` after `moment`, which is not negative; saturates at kNever.
inline Nanoseconds after(Nanoseconds moment, Nanoseconds duration) noexcept {
  return duration >= kNever - moment ? kNever : moment + duration;
}
// `duration` from now.
inline Nanoseconds after(Nanoseconds duration) noexcept { return after(now(), duration); }

}  // namespace hami
