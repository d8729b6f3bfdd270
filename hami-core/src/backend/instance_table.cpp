// InstanceTable: registration and look-up.
#include "backend/instance_table.hpp"

#include "base/near.hpp"
#include "sync/waiting.hpp"

namespace hami {

void InstanceTable::add(const std::string& name, BackendPtr backend) {
  MutexLock lock(mutex_);
  if (by_name_.count(name)) throw Error(ErrorCode::kAlreadyExists, "instance \"" + name + "\" exists already");
  by_name_[name] = backend.get();
  instances_.emplace_back(name, std::move(backend));
}

void InstanceTable::mark_auto(const std::string& node) {
  MutexLock lock(mutex_);
  auto_nodes_.insert(node);
}

bool InstanceTable::is_auto(const std::string& node) const noexcept {
  MutexLock lock(mutex_);
  return auto_nodes_.count(node) > 0;
}

Backend* InstanceTable::find(const std::string& name) const noexcept {
  MutexLock lock(mutex_);
  return find_locked(name);
}

Backend* InstanceTable::find_locked(const std::string& name) const noexcept {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) found = by_name_.find("node." + name);
  return found == by_name_.end() ? nullptr : found->second;
}

Backend& InstanceTable::get(const std::string& name) const {
  MutexLock lock(mutex_);
  if (Backend* backend = find_locked(name)) return *backend;
  std::vector<std::string> candidates;
  for (const auto& entry : instances_) candidates.push_back(entry.first);
  throw Error(ErrorCode::kNotFound, "instance \"" + name + "\" not found" + did_you_mean(near_names(name, candidates)));
}

bool InstanceTable::enter(Visitor& visitor) noexcept {
  MutexLock lock(mutex_);
  if (visits_ended_) return false;
  visitor.next = visitors_;
  if (visitors_) visitors_->previous = &visitor;
  visitors_ = &visitor;
  return true;
}

void InstanceTable::leave(Visitor& visitor) noexcept {
  MutexLock lock(mutex_);
  (visitor.previous ? visitor.previous->next : visitors_) = visitor.next;
  if (visitor.next) visitor.next->previous = visitor.previous;
  if (!visitors_) left_.notify_all();
}

std::vector<std::string> InstanceTable::end_visits(Nanoseconds until) {
  {
    MutexLock lock(mutex_);
    visits_ended_ = true;
    if (!visitors_) return {};
  }
  wait_for(mutex_, left_, until, [&] {
    mutex_.assert_held();
    return !visitors_;
  });
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const Visitor* visitor = visitors_; visitor; visitor = visitor->next) names.push_back(visitor->name);
  return names;
}

void InstanceTable::expect(const std::string& name, const std::string& node) {
  MutexLock lock(mutex_);
  expected_.emplace_back(name, node);
}

void InstanceTable::check_expected() const {
  std::vector<std::pair<std::string, std::string>> expected;
  {
    MutexLock lock(mutex_);
    expected = expected_;
  }
  for (const auto& [name, node] : expected) {
    try {
      get(name).range();  // throws if the instance names itself
    } catch (const Error& error) {
      throw node.empty() ? error : error.with_note("node \"" + node + "\"");
    }
  }
}

void InstanceTable::clear() noexcept {
  *is_alive_ = false;
  std::vector<std::pair<std::string, BackendPtr>> instances;  // destroyed without the mutex
  {
    MutexLock lock(mutex_);
    by_name_.clear();
    instances.swap(instances_);
  }
  while (!instances.empty()) instances.pop_back();
}

}  // namespace hami
