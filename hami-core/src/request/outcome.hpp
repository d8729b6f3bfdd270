// Outcome: how a request ends.
#pragma once

#include <cstddef>
#include <optional>

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

}  // namespace hami
