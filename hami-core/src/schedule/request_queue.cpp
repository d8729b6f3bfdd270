// RequestQueue: which requests form a batch, and which leave without one.
#include "schedule/request_queue.hpp"

#include <algorithm>
#include <utility>

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

void RequestQueue::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call, std::size_t before) noexcept {
  ++size_;
  items_ += request->items;
  request->queued_at = moment;
  request->call = call;
  Lane& lane = lanes_[lane_of(request->priority)];
  const bool follows = unordered_ && !lane.empty();
  request->round = (follows ? std::min(round_, lane.first()->round) : round_) + before / share_;
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
  request.round = kLastRound;
  return lanes_[lane].remove(request);
}

void RequestQueue::take(const Cut& cut, RequestChain& taken, Takes which) noexcept {
  const std::size_t overdue = lanes_[kOverdue].size();
  std::size_t left = cut.count;
  for_each_from(which, cut.start, [&](std::size_t lane, Request& request) {
    if (left == 0) return false;
    taken_ += request.items;
    taken.push(remove(lane, request));
    --left;
    return true;
  });
  round_ += taken_ / share_;
  taken_ %= share_;
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

void Lane::insert(Ref<Request> request) noexcept {
  if (!last_ || !overtakes(*request, *last_)) return append(std::move(request));
  Request& inserted = *request.detach();
  link_arrival(inserted);
  index_all();
  Request *parent = nullptr, *next = nullptr;
  bool left = false;
  for (Request* at = root_; at; at = left ? at->links_.left : at->links_.right) {
    parent = at;
    left = overtakes(inserted, *at);
    if (left) next = at;
  }
  HAMI_ASSERT(next);
  link_before(inserted, next);
  place(inserted, parent, left);
}

void Lane::append(Ref<Request> request) noexcept {
  Request& appended = *request.detach();
  link_arrival(appended);
  link_before(appended, nullptr);
  if (!first_appended_) first_appended_ = &appended;
}

Ref<Request> Lane::remove(Request& request) noexcept {
  LaneLinks& links = request.links_;
  if (links.weight > 0) leave_tree(request);
  if (first_appended_ == &request) first_appended_ = links.after;
  (links.before ? links.before->links_.after : first_) = links.after;
  (links.after ? links.after->links_.before : last_) = links.before;
  (links.older ? links.older->links_.younger : oldest_) = links.younger;
  (links.younger ? links.younger->links_.older : youngest_) = links.older;
  links = LaneLinks();
  --size_;
  items_ -= request.items;
  bytes_ -= request.bytes;
  return Ref<Request>::adopt(&request);
}

void Lane::link_arrival(Request& request) noexcept {
  request.links_.older = youngest_;
  (youngest_ ? youngest_->links_.younger : oldest_) = &request;
  youngest_ = &request;
  ++size_;
  items_ += request.items;
  bytes_ += request.bytes;
}

// `next`: null at the end.
void Lane::link_before(Request& request, Request* next) noexcept {
  Request* const before = next ? next->links_.before : last_;
  request.links_.before = before;
  request.links_.after = next;
  (before ? before->links_.after : first_) = &request;
  (next ? next->links_.before : last_) = &request;
}

// The last request of a tree has no right child.
void Lane::index_all() noexcept {
  for (Request* request = std::exchange(first_appended_, nullptr); request; request = request->links_.after)
    place(*request, request->links_.before, false);
}

// Adds a leaf below `parent`, and restores the heap.
void Lane::place(Request& request, Request* parent, bool left) noexcept {
  random_ ^= random_ << 13U;  // xorshift: never 0
  random_ ^= random_ >> 17U;
  random_ ^= random_ << 5U;
  request.links_.weight = random_;
  request.links_.parent = parent;
  (!parent ? root_ : left ? parent->links_.left : parent->links_.right) = &request;
  while (request.links_.parent && request.links_.parent->links_.weight < request.links_.weight) rotate_up(request);
}

void Lane::rotate_up(Request& request) noexcept {
  Request* const parent = request.links_.parent;
  Request* const above = parent->links_.parent;
  const bool left = parent->links_.left == &request;
  Request*& inner = left ? request.links_.right : request.links_.left;
  (left ? parent->links_.left : parent->links_.right) = inner;
  if (inner) inner->links_.parent = parent;
  inner = parent;
  parent->links_.parent = &request;
  request.links_.parent = above;
  (!above ? root_ : above->links_.left == parent ? above->links_.left : above->links_.right) = &request;
}

// Moves the request down to a leaf, and cuts it off.
void Lane::leave_tree(Request& request) noexcept {
  const LaneLinks& links = request.links_;
  while (links.left || links.right) {
    const bool left = links.left && (!links.right || links.left->links_.weight > links.right->links_.weight);
    rotate_up(left ? *links.left : *links.right);
  }
  Request* const parent = links.parent;
  (!parent ? root_ : parent->links_.left == &request ? parent->links_.left : parent->links_.right) = nullptr;
}

void Lane::swap(Lane& other) noexcept {
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(oldest_, other.oldest_);
  std::swap(youngest_, other.youngest_);
  std::swap(root_, other.root_);
  std::swap(first_appended_, other.first_appended_);
  std::swap(size_, other.size_);
  std::swap(items_, other.items_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace hami
