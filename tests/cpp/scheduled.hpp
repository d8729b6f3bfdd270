// What the tests of a node's scheduler share.
#pragma once

#include "schedule/node_scheduler.hpp"

namespace hami::testing {

inline Ref<Request> request_of(std::size_t items) {
  Ref<Request> request = make_counted<Request>();
  request->items = items;
  return request;
}

}  // namespace hami::testing
