// One bad request fails alone: what happens to a batch whose forward throws.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "request/request.hpp"

namespace hami {

// Runs `forward` on the batch. If it throws, each request that has no outcome is restored to what it was and run once
// more alone, so that only the bad ones fail; not after an error that is final, nor where `may_retry` or the request
// forbids it. Returns how many were run again.
template <class Forward>
std::size_t forward_with_retry(Batch batch, bool may_retry, const Forward& forward) {
  const auto isolates = [](const Request* request) { return request->isolates; };
  may_retry = may_retry && batch.size() > 1 && std::any_of(batch.begin(), batch.end(), isolates);
  std::vector<Dict> as_it_came;
  if (may_retry)
    for (const Request* request : batch) as_it_came.push_back(request->dict);
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
    forward(batch);
  } catch (...) {
    const Error failure = current_error();
    may_retry = may_retry && !failure.is_final();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!may_retry || !batch[i].isolates) {
        batch[i].fail(failure);
      } else if (batch[i].alive()) {
        batch[i].dict = std::move(as_it_came[i]);
        retry_alone(batch[i]);
      }
    }
  }
  return retried;
}

}  // namespace hami
