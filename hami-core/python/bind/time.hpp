// Converts timeouts in seconds, as Python callers pass them, to the core's nanoseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "gil.hpp"
#include "sync/api.hpp"

namespace hami::bind {

// A duration. None is kNever, a negative number is 0; Error(kDataType) for any other object. Requires the GIL.
inline Nanoseconds from_seconds(py::handle timeout) {
  HAMI_ASSERT(has_gil());
  if (timeout.is_none()) return kNever;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  const bool is_invalid = seconds == -1.0 && PyErr_Occurred();
  PyErr_Clear();
  if (is_invalid || std::isnan(seconds))
    throw Error(ErrorCode::kDataType,
                "timeout must be a number of seconds or None, got " + std::string(py::repr(timeout)));
  return from_milliseconds(std::max(0.0, seconds) * 1e3);
}

// The moment when a timeout that starts now ends; kNoWait for a timeout of 0.
inline Nanoseconds deadline_after(py::handle timeout) {
  const Nanoseconds duration = from_seconds(timeout);
  return duration == 0 ? kNoWait : after(duration);
}

inline double seconds_since(Nanoseconds moment) noexcept { return static_cast<double>(now() - moment) / 1e9; }

}  // namespace hami::bind
