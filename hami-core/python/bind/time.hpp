// Seconds, as Python gives them, to the core's nanoseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "value/error.hpp"
#include "sync/waiting.hpp"
#include "gil.hpp"

namespace hami::bind {

// How long; None is without a limit, less than nothing is nothing. With the lock held. Error(kDataType) if it is no number.
inline Nanoseconds from_seconds(py::handle timeout) {
  if (timeout.is_none()) return kNever;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  const bool wrong = seconds == -1.0 && PyErr_Occurred();
  PyErr_Clear();
  if (wrong || std::isnan(seconds))
    throw Error(ErrorCode::kDataType, "timeout takes a number of seconds or None, got " + std::string(py::repr(timeout)));
  return from_milliseconds(std::max(0.0, seconds) * 1e3);
}

// Until when: kNoWait for a timeout of 0.
inline Nanoseconds until_of(py::handle timeout) {
  const Nanoseconds duration = from_seconds(timeout);
  return duration == 0 ? kNoWait : after(duration);
}

inline double seconds_since(Nanoseconds moment) noexcept { return static_cast<double>(now() - moment) / 1e9; }

}  // namespace hami::bind
