// Seconds, as Python gives them, to the core's nanoseconds.
#pragma once

#include <algorithm>
#include <optional>

#include "base/waiting.hpp"

namespace hami::bind {

// How long; None is without a limit, less than nothing is nothing.
inline Nanoseconds from_seconds(std::optional<double> seconds) noexcept {
  return seconds ? from_milliseconds(std::max(0.0, *seconds) * 1e3) : kNever;
}

// Until when: kNoWait for a timeout of 0.
inline Nanoseconds until_of(std::optional<double> timeout) noexcept {
  const Nanoseconds duration = from_seconds(timeout);
  return duration == 0 ? kNoWait : after(duration);
}

}  // namespace hami::bind
