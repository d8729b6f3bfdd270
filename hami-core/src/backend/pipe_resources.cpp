// PipeResources: unique names, queues, and what one node asks about another.
#include "backend/pipe_resources.hpp"

#include "value/error.hpp"

namespace hami {

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
