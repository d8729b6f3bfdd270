// NodeScheduler: arrivals: admission by deadline, and which waits are blocked.
#include <array>

#include "schedule/node_scheduler.hpp"

namespace hami {

void NodeScheduler::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept {
  note_arrival(lane_of(request->priority), moment);
  queue_.push(std::move(request), moment, call);
  note_instances();
}

bool NodeScheduler::begin_arrival(const Request& request) {
  config_.auto_instances = false;  // a limit that is raised later would be too late for the detection of deadlocks
  arriving_.push_back(&request);
  const bool may_start = lane_of(request.priority) != kNormalLane || free_for_normal() > 0;
  const auto is_for_it = [&](Index instance) { return may_start && takes(instance, request); };
  return !queue_.empty() || std::none_of(idle_.begin(), idle_.end(), is_for_it);
}

void NodeScheduler::end_arrival(const Request& request) noexcept {
  arriving_.erase(std::remove(arriving_.begin(), arriving_.end(), &request), arriving_.end());
}

// A lower bound: the requests ahead run in full batches on all instances, and its own batch has no other request.
Nanoseconds NodeScheduler::earliest_end(const Request& request, Nanoseconds moment) const noexcept {
  const std::optional<double> own = times_.of(request.items);
  if (!own) return 0;
  const bool normal = lane_of(request.priority) == kNormalLane, reserved = normal && free_for_normal() == 0;
  Nanoseconds start = free_instances() > 0 && !reserved ? moment : kNever;
  for (const Instance& instance : instances_)
    if (instance.normal || !reserved) start = std::min(start, std::max(moment, instance.ends));
  const std::size_t target = target_batch_size(), full = target > 0 ? target : config_.batching.max;
  const std::size_t hands = normal ? free_for_normal(instances_in_use(), 0) : instances_in_use();
  const double rounds = static_cast<double>(queue_.items_ahead(request) / full / hands);
  return after(start, static_cast<Nanoseconds>(rounds * *times_.of(full) + *own));
}

// Now and then it admits one that cannot end in time: otherwise a node that was slow for a while would never learn that it is
// fast again.
bool NodeScheduler::admits(const Request& request, Nanoseconds moment) noexcept {
  if (!config_.by_deadline || request.deadline == kNever || earliest_end(request, moment) <= request.deadline)
    return true;
  return ++unreachable_ % policy::kMemory == 0;
}

// Requests behind a blocked one are blocked too, unless that one leaves the queue: it expires, or its caller gives it up.
WaitLocation::Blocked NodeScheduler::blocked(const std::vector<Index>& unavailable, Nanoseconds moment) const {
  std::vector<bool> comes(instances_.size(), true);
  std::size_t normal_batches = 0;
  for (const Index instance : unavailable) {
    comes[instance] = false;
    normal_batches += instances_[instance].normal;
  }
  // Normal requests cannot be taken; then they are not in front of the others.
  const bool reserved = free_for_normal(instances_.size(), normal_batches) == 0;
  const auto is_held = [&](const Request& request) { return reserved && lane_of(request.priority) == kNormalLane; };
  const auto taken = [&](const Request& request) {
    if (is_held(request)) return false;
    for (Index i = 0; i < instances_.size(); ++i)
      if (comes[i] && takes(i, request)) return true;
    return false;
  };
  const auto stays = [&](const Request& request) { return request.deadline >= moment && !request.abandoned(); };
  WaitLocation::Blocked blocked;
  bool closed = false;
  const auto look_at = [&](const Request& request) {
    if (!closed && taken(request)) return;
    if (const Dependency dependency = dependency_of(request); dependency.token && dependency.until >= moment)
      blocked.tokens.push_back(dependency.token.get());
    closed = closed || (!is_held(request) && stays(request));
  };
  std::array<std::size_t, kLanes> staying = {};
  queue_.for_each([&](const Request& request) {
    staying[lane_of(request.priority)] += stays(request);
    look_at(request);
  });
  const Request* const front = queue_.first(reserved && queue_.has_high() ? Takes::kHigh : Takes::kAll);
  if (full() && !taken(*front) && stays(*front)) {
    blocked.capacity = true;  // each full lane stays full
    for (const LaneName lane : {kUrgentLane, kHighLane, kNormalLane})
      if (full(lane) && !is_full(staying[lane])) blocked.capacity = false;
  }
  const bool closed_by_queue = closed;
  for (const Request* request : arriving_) {
    closed = closed_by_queue && !queue_.would_be_first(*request);
    look_at(*request);
  }
  return blocked;
}

}  // namespace hami
