// Names of one pipe's instances, and its end.
#include "backend/pipe_context.hpp"

#include "base/near.hpp"

namespace hami {

void PipeContext::add(const std::string& name, BackendPtr backend) {
  if (by_name_.count(name)) throw Error(ErrorCode::kAlreadyExists, "instance \"" + name + "\" exists already");
  by_name_[name] = backend.get();
  names_.emplace_back(name, std::move(backend));
}

Backend* PipeContext::find(const std::string& name) const noexcept {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) found = by_name_.find("node." + name);  // a node may be called by its bare name
  return found == by_name_.end() ? nullptr : found->second;
}

Backend& PipeContext::get(const std::string& name) const {
  if (Backend* backend = find(name)) return *backend;
  std::vector<std::string> candidates;
  for (const auto& entry : names_) candidates.push_back(entry.first);
  throw Error(ErrorCode::kNotFound, "instance \"" + name + "\" not found" + did_you_mean(near_names(name, candidates)));
}

void PipeContext::check_expected() const {
  for (const auto& [name, node] : expected_) {
    try {
      get(name).range();  // an instance that names itself says so
    } catch (const Error& error) {
      throw node.empty() ? error : error.with_note("node \"" + node + "\"");
    }
  }
}

void PipeContext::clear_names() noexcept {
  *has_names_ = false;
  by_name_.clear();
  while (!names_.empty()) names_.pop_back();
}

std::string PipeContext::unique(const std::string& name) {
  std::lock_guard lock(mutex_);
  const std::size_t number = ++given_away_[name];
  return number == 1 ? name : name + " (" + std::to_string(number) + ")";
}

Ref<Queue> PipeContext::queue(const std::string& name, std::optional<std::size_t> max) {
  std::lock_guard lock(mutex_);
  Ref<Queue>& queue = queues_[name];
  if (!queue) queue = make_object<Queue>(Queue::kDefaultMax, name);
  if (!max) return queue;
  if (!declared_queues_.insert(name).second && queue->max() != *max)
    throw Error(ErrorCode::kConfig, "queue \"" + name + "\" has room for " + std::to_string(queue->max()) +
                                        " and for " + std::to_string(*max) + "; declare it once");
  queue->set_max(static_cast<std::int64_t>(*max));
  return queue;
}

std::optional<Value> PipeContext::first_waiting(const std::string& node) const {
  const auto found = first_waiting_.find(node);
  if (found == first_waiting_.end())
    throw Error(ErrorCode::kNotFound, "node \"" + node + "\" has no queue; its node_entrypoint has no InstanceDispatcher");
  return found->second();
}

void PipeContext::report_abandoned(std::string what) {
  std::lock_guard lock(mutex_);
  abandoned_.push_back(std::move(what));
}

std::vector<std::string> PipeContext::take_abandoned() {
  std::lock_guard lock(mutex_);
  return std::exchange(abandoned_, {});
}

}  // namespace hami
