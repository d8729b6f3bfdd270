// Names of the queues that a node has by itself: `<node>.queue`, and `<node>.queue.<i>` of its instance i.
#pragma once

#include <optional>
#include <string>

namespace hami {

struct NodeQueueName {
  std::string node;
  std::string instance;  // "<node>.<i>"; empty: the queue that all instances share
};

// What a name of a queue means if it is one of a node, and not any other queue of the pipe.
std::optional<NodeQueueName> node_queue_name(const std::string& name);

}  // namespace hami
