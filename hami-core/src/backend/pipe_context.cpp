// PipeContext: queues and their names, what one node asks about another, abandoned backends.
#include "backend/pipe_context.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hami {

// ---- Parses the name of a node's queue.

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

// ---- PipeShutdown: the list of abandoned backends.

void PipeShutdown::report_abandoned(const std::string& name) noexcept {
  MutexLock lock(mutex_);
  try {
    abandoned_.push_back(name);
  } catch (const std::bad_alloc&) {
  }
}

std::vector<std::string> PipeShutdown::take_abandoned() {
  MutexLock lock(mutex_);
  return std::exchange(abandoned_, {});
}

// ---- PipeResources: unique names, queues, and what one node asks about another.

std::string PipeResources::unique(const std::string& name) {
  MutexLock lock(mutex_);
  const std::size_t number = ++given_out_[name];
  return number == 1 ? name : name + " (" + std::to_string(number) + ")";
}

Ref<Queue> PipeResources::queue(const std::string& name, std::optional<std::size_t> max) {
  MutexLock lock(mutex_);
  Ref<Queue>& queue = queues_[name];
  if (!queue) queue = make_object<Queue>(Queue::kDefaultMax, name);
  if (!max) return queue;
  if (!declared_queues_.insert(name).second && queue->max() != *max)
    throw Error(ErrorCode::kConfig, "queue \"" + name + "\" is declared with capacity " + std::to_string(queue->max()) +
                                        " and with " + std::to_string(*max) + "; declare it once");
  queue->set_max(static_cast<std::int64_t>(*max));
  return queue;
}

Ref<Queue> PipeResources::queue_by_name(const std::string& name) {
  if (node_queue_name(name))
    throw Error(
        ErrorCode::kInvalidArgument,
        "the queue \"" + name + "\" belongs to a node; to send to it, write Send(" + name + ") in an expression");
  return queue(name);
}

void PipeResources::share_queue(const std::string& name, Ref<Queue> queue) {
  MutexLock lock(mutex_);
  queues_[name] = std::move(queue);
}

bool PipeResources::has_free_instance(const std::string& node) const {
  std::function<bool()> probe;
  {
    MutexLock lock(mutex_);
    const auto found = free_instance_.find(node);
    if (found == free_instance_.end()) return true;
    probe = found->second;
  }
  return probe();
}

void PipeResources::set_free_instance_probe(const std::string& node, std::function<bool()> probe) {
  MutexLock lock(mutex_);
  free_instance_[node] = std::move(probe);
}

std::optional<Value> PipeResources::first_waiting(const std::string& node) const {
  std::function<std::optional<Value>()> probe;
  {
    MutexLock lock(mutex_);
    const auto found = first_waiting_.find(node);
    if (found == first_waiting_.end())
      throw Error(ErrorCode::kNotFound,
                  "node \"" + node + "\" has no queue; its node_entrypoint has no InstanceDispatcher");
    probe = found->second;
  }
  return probe();
}

void PipeResources::set_queue_probe(const std::string& node, std::function<std::optional<Value>()> probe) {
  MutexLock lock(mutex_);
  first_waiting_[node] = std::move(probe);
}

}  // namespace hami
