// Parses the name of a node's queue.
#include "backend/node_queue_name.hpp"

#include <algorithm>

namespace hami {

std::optional<NodeQueueName> node_queue_name(const std::string& name) {
  constexpr std::string_view kQueueOf = ".queue";
  const std::size_t end = name.rfind(kQueueOf);
  if (end == std::string::npos || end == 0) return std::nullopt;
  const std::string node = name.substr(0, end);
  const std::string rest = name.substr(end + kQueueOf.size());
  if (rest.empty()) return NodeQueueName{node, ""};
  const bool is_index = rest.size() > 1 && rest[0] == '.' &&
                        std::all_of(rest.begin() + 1, rest.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_index ? std::optional(NodeQueueName{node, node + rest}) : std::nullopt;
}

}  // namespace hami
