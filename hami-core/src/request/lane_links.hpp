// LaneLinks: the links of a request that waits in a Lane (schedule/request_queue.hpp), which therefore never allocates.
#pragma once

#include <cstdint>

namespace hami {

class Request;

struct LaneLinks {
  Request* before = nullptr;  // in the order of the lane
  Request* after = nullptr;
  Request* older = nullptr;  // in the order of arrival
  Request* younger = nullptr;
  Request* parent = nullptr;  // in the search tree
  Request* left = nullptr;
  Request* right = nullptr;
  std::uint32_t weight = 0;  // in the search tree; 0: it is not in the tree
};

}  // namespace hami
