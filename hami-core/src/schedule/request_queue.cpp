// RequestQueue: which requests form a batch, and which leave without one.
#include "schedule/request_queue.hpp"

namespace hami {
bool RequestQueue::fail_if_expired(Request& request, Nanoseconds moment) noexcept {
  const bool late = request.deadline <= moment;
  if (!late && !request.abandoned()) return false;
  request.fail(late ? deadline_exceeded(request, moment) : Error::cancelled());
  return true;
}

const RequestQueue::Order& RequestQueue::order(Takes which) const noexcept {
  static constexpr Order kOverdueFirst = {{kOverdue, kUrgentLane, kHighLane, kNormalLane}, 4};
  static constexpr Order kHighFirst = {{kUrgentLane, kHighLane, kOverdue, kNormalLane}, 4};
  static constexpr Order kHighOnly = {{kUrgentLane, kHighLane}, 2};
  if (which == Takes::kHigh) return kHighOnly;
  return overdue_first_ ? kOverdueFirst : kHighFirst;
}

const Request* RequestQueue::first(Takes which) const noexcept {
  for (const std::size_t lane : order(which))
    if (const Request* request = lanes_[lane].first()) return request;
  return nullptr;
}

bool RequestQueue::would_be_first(const Request& request) const noexcept {
  for (const std::size_t lane : order()) {
    const Request* ahead = lanes_[lane].first();
    if (lane == lane_of(request.priority)) return !ahead || Lane::overtakes(request, *ahead);
    if (ahead) return false;
  }
  return true;
}

std::size_t RequestQueue::items_ahead(const Request& request) const noexcept {
  const LaneName lane = lane_of(request.priority);
  std::size_t items = lane == kNormalLane ? lanes_[kOverdue].items() : 0;
  for (std::size_t ahead = 0; ahead <= lane; ++ahead) items += lanes_[ahead].items();
  const Request* other = lanes_[lane].last();
  for (; other && Lane::overtakes(request, *other); other = Lane::before(*other)) items -= other->items;
  return items;
}

void RequestQueue::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept {
  ++size_;
  items_ += request->items;
  request->queued_at = moment;
  request->call = call;
  Lane& lane = lanes_[lane_of(request->priority)];
  lane.insert(std::move(request));
}

void RequestQueue::age(Nanoseconds moment) noexcept {
  if (aging_ == kNever) return;
  while (Request* const oldest = lanes_[kNormalLane].oldest()) {
    if (moment - oldest->queued_at < aging_) return;
    lanes_[kOverdue].append(lanes_[kNormalLane].remove(*oldest));
  }
}

RequestQueue::Cut RequestQueue::cut(std::size_t max_items, bool one_call, Takes which, Start start) const noexcept {
  Cut cut{0, 0, start};
  std::uint64_t call = 0;
  visit_while(which, [&](const Request& next) {
    if (cut.count == 0) call = next.call;
    if (cut.count > 0 && (cut.items + next.items > max_items || (one_call && next.call != call))) return false;
    cut.items += next.items;
    ++cut.count;
    return true;
  }, start);
  return cut;
}

std::size_t RequestQueue::items_of_first_call() const noexcept {
  std::size_t items = 0;
  const Request* const front = first();
  visit_while(Takes::kAll, [&](const Request& next) {
    if (next.call != front->call) return false;
    items += next.items;
    return true;
  });
  return items;
}

Ref<Request> RequestQueue::remove(std::size_t lane, Request& request) noexcept {
  --size_;
  items_ -= request.items;
  return lanes_[lane].remove(request);
}

void RequestQueue::take(const Cut& cut, RequestChain& taken, Takes which) noexcept {
  const std::size_t overdue = lanes_[kOverdue].size();
  std::size_t left = cut.count;
  for_each_from(which, cut.start, [&](std::size_t lane, Request& request) {
    if (left == 0) return false;
    taken.push(remove(lane, request));
    --left;
    return true;
  });
  overdue_first_ = lanes_[kOverdue].size() == overdue;
}

RequestChain RequestQueue::take_all() noexcept {
  RequestChain all;
  take({size_, items_, {}}, all);
  return all;
}

Ref<Request> RequestQueue::remove_oldest(LaneName lane) noexcept {
  const std::size_t from = lane == kNormalLane && !lanes_[kOverdue].empty() ? std::size_t{kOverdue} : lane;
  return remove(from, *lanes_[from].oldest());
}

}  // namespace hami
