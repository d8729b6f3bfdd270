// How a batch ends: the outcome of each request, and the retry that isolates a bad one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "observe/api.hpp"
#include "request/request.hpp"
#include "sync/api.hpp"

namespace hami {

// Outcome: how a request ends.
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

// Retry policy: a request that makes its batch fail must fail alone.
// Runs `forward` on the batch. If it throws, each open request is restored and runs again alone, so that only the bad ones
// fail; not after a final error, and not if `may_retry` or the request forbids it. Requests that are
// cancelled or have delivered parts do not run again. Returns how many requests ran again. An exception becomes the outcome of its requests.
template <class Forward>
std::size_t forward_with_retry(Batch batch, bool may_retry, const Forward& forward) {
  const auto isolates = [](const Request* request) { return request->isolates; };
  may_retry = may_retry && batch.size() > 1 && std::any_of(batch.begin(), batch.end(), isolates);
  std::vector<Dict> original;
  std::size_t retried = 0;
  const auto retry_alone = [&](Request& request) {
    ++retried;
    Request* one = &request;
    try {
      forward(Batch(&one, 1));
    } catch (...) {
      request.fail(current_error());
    }
  };
  try {
    if (may_retry)
      for (const Request* request : batch) original.push_back(request->dict);
    forward(batch);
  } catch (...) {
    const Error failure = current_error();
    may_retry = may_retry && !failure.is_final();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!may_retry || !batch[i].isolates || batch[i].cancelled() || batch[i].has_emitted()) {
        batch[i].fail(failure);
      } else if (batch[i].alive()) {
        batch[i].dict = std::move(original[i]);
        retry_alone(batch[i]);
      }
    }
  }
  for (Request* request : batch) request->fail_if_cancelled();
  return retried;
}

}  // namespace hami
