// The clock of a model, in place of the core's: it passes only where a wait reaches its end.
#pragma once

#include <cstdint>

#include "explore.hpp"

namespace hami {

using Nanoseconds = std::int64_t;
inline constexpr Nanoseconds kNever = INT64_MAX;

inline Nanoseconds now() noexcept { return model::time(); }
inline Nanoseconds from_milliseconds(double milliseconds) noexcept {
  return static_cast<Nanoseconds>(milliseconds * 1e6);
}
inline Nanoseconds after(Nanoseconds moment, Nanoseconds duration) noexcept {
  return duration >= kNever - moment ? kNever : moment + duration;
}
inline Nanoseconds after(Nanoseconds duration) noexcept { return after(now(), duration); }

}  // namespace hami
