// The names of a node's own queues: `<node>.queue`, and `<node>.queue.<i>` for its instance i.
#pragma once

#include <optional>
#include <string>

namespace hami {

struct NodeQueueName {
  std::string node;
  std::string instance;  // "<node>.<i>"; empty: the queue that all instances share
};

// Empty if `name` is not that of a node's queue.
std::optional<NodeQueueName> node_queue_name(const std::string& name);

}  // namespace hami
