// What the tests of a node's scheduler share.
#pragma once

#include <utility>
#include <vector>

#include "schedule/node_scheduler.hpp"

namespace hami::testing {

inline Ref<Request> request_of(std::size_t items) {
  Ref<Request> request = make_counted<Request>();
  request->items = items;
  return request;
}

// Takes all requests out of the chain.
inline std::vector<Ref<Request>> all_of(RequestChain& chain) {
  std::vector<Ref<Request>> all;
  while (Ref<Request> request = chain.pop()) all.push_back(std::move(request));
  return all;
}

}  // namespace hami::testing
