// Outcome: how a request ends.
#pragma once

#include <cstddef>
#include <optional>

#include "observe/trace.hpp"
#include "value/error.hpp"

namespace hami {

enum Outcome : std::size_t { kCompleted, kFailed, kRejected, kExpired, kCancelled };
inline constexpr const char* kOutcomeNames[] = {"completed", "failed", "rejected", "expired", "cancelled"};

inline Outcome outcome_of(const std::optional<Error>& error) noexcept {
  if (!error) return kCompleted;
  switch (error->code()) {
    case ErrorCode::kSkipped: return kCompleted;
    case ErrorCode::kQueueFull:
    case ErrorCode::kPipeClosed: return kRejected;
    case ErrorCode::kDeadlineExceeded: return kExpired;
    case ErrorCode::kCancelled: return kCancelled;
    default: return kFailed;
  }
}

// In the timeline.
inline trace::Name name_of(Outcome outcome) noexcept {
  static const trace::Name names[] = {trace::intern(kOutcomeNames[kCompleted]), trace::intern(kOutcomeNames[kFailed]),
                                      trace::intern(kOutcomeNames[kRejected]), trace::intern(kOutcomeNames[kExpired]),
                                      trace::intern(kOutcomeNames[kCancelled])};
  return names[outcome];
}

}  // namespace hami
