// RequestQueue: the requests that wait for a node, in the order in which they are taken. Pure data: no locks and no clock. It
// never allocates: the links are in the requests.
//
// Requests wait in one lane for each class of service, which are served in this order: urgent, high, normal. A normal request
// that has waited for `aging` is overdue: it moves to a lane of its own, in order of arrival, which is served first. While
// urgent or high requests wait, only every second batch begins with overdue ones: otherwise a node with too much normal work
// would serve no request in time.
//
// Rounds. The first `share` items of a call are in the current round, the next ones in the round after it, and so on; a round ends
// when `share` items were taken since it began. So a call of a thousand requests holds up a later one by no more than a round,
// and later calls hold up the rest of it by no more than a share for each round.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "observe/api.hpp"
#include "request/api.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

// Lane: requests that wait, ordered by number (the larger first), then deadline (the earlier first), then round, then
// arrival.
//
// All requests are in two lists, by order and by arrival. A request that belongs at the end is appended, in constant time. Only
// when one belongs further ahead, those appended so far enter a search tree (a treap: a binary tree by order, and a heap by
// random weights, so that it stays balanced); then it finds its place in O(log n). The tree has a front part of the lane.
class Lane {
 public:
  Lane() noexcept = default;
  Lane(Lane&& other) noexcept { swap(other); }
  Lane& operator=(Lane&& other) noexcept {
    Lane(std::move(other)).swap(*this);
    return *this;
  }
  ~Lane() {
    while (first_) remove(*first_);
  }

  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  std::size_t items() const noexcept { return items_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Request* first() const noexcept { return first_; }
  Request* last() const noexcept { return last_; }
  Request* oldest() const noexcept { return oldest_; }
  static Request* before(const Request& request) noexcept { return request.links_.before; }
  static Request* after(const Request& request) noexcept { return request.links_.after; }
  // Whether `one` is served before `other`, which arrived earlier.
  static bool overtakes(const Request& one, const Request& other) noexcept {
    if (one.priority != other.priority) return one.priority > other.priority;
    return one.deadline != other.deadline ? one.deadline < other.deadline : one.round < other.round;
  }

  void insert(Ref<Request> request) noexcept;
  // At the end, out of order or not. A lane with such requests must not `insert` others.
  void append(Ref<Request> request) noexcept;
  Ref<Request> remove(Request& request) noexcept;

 private:
  void link_arrival(Request& request) noexcept;
  void link_before(Request& request, Request* next) noexcept;
  void index_all() noexcept;
  void place(Request& request, Request* parent, bool left) noexcept;
  void rotate_up(Request& request) noexcept;
  void leave_tree(Request& request) noexcept;
  void swap(Lane& other) noexcept;

  Request* first_ = nullptr;
  Request* last_ = nullptr;
  Request* oldest_ = nullptr;
  Request* youngest_ = nullptr;
  Request* root_ = nullptr;
  Request* first_appended_ = nullptr;  // the first that is not in the tree
  std::size_t size_ = 0;
  std::size_t items_ = 0;
  std::size_t bytes_ = 0;
  std::uint32_t random_ = 1;
};

// Where a batch begins, and which of the requests behind it are left out: those whose deadline is earlier than `ends`, and those
// whose cost is below `least_cost` or above `most_cost`.
struct QueueStart {
  Request* first = nullptr;  // of the first lane; null: the front
  Nanoseconds ends = -kNever;
  double least_cost = 0, most_cost = 0;  // 0: any

  bool filters() const noexcept { return ends != -kNever || most_cost > 0; }
  bool is_front() const noexcept { return !first && !filters(); }
  bool leaves_out(const Request& request) const noexcept {
    return request.deadline < ends || (most_cost > 0 && (request.cost < least_cost || request.cost > most_cost));
  }
};

// Requests of the queue that form a batch.
struct QueueCut {
  std::size_t count = 0;
  std::size_t items = 0;
  QueueStart start = {};
};

class RequestQueue {
 public:
  using Start = QueueStart;
  using Cut = QueueCut;

  void set_aging(Nanoseconds aging) noexcept { aging_ = aging; }  // kNever: normal requests wait as long as others come

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }  // in requests
  std::size_t items() const noexcept { return items_; }
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (const Lane& lane : lanes_) sum += lane.bytes();
    return sum;
  }
  std::size_t size(LaneName lane) const noexcept {
    return lanes_[lane].size() + (lane == kNormalLane ? lanes_[kOverdue].size() : 0);
  }
  // Which requests a batch may take.
  enum class Takes { kAll, kHigh };  // kHigh: no normal ones

  bool has_high() const noexcept { return !lanes_[kUrgentLane].empty() || !lanes_[kHighLane].empty(); }
  const Request* first(Takes which = Takes::kAll) const noexcept;  // null: there is none
  // In the order in which they are taken.
  template <class Visit>
  void for_each(const Visit& visit) const {
    visit_while(Takes::kAll, [&](const Request& request) {
      visit(request);
      return true;
    });
  }
  // The requests of the first lane that compete for the same batches, at most policy::kRivals: those that have a deadline and the
  // number of the first request. Until `visit` returns false.
  template <class Visit>
  void for_each_rival(Takes which, const Visit& visit) const {
    for (const std::size_t lane : order(which)) {
      Request *const front = lanes_[lane].first(), *rival = front;
      for (std::size_t i = 0; rival && i < policy::kRivals; ++i, rival = Lane::after(*rival))
        if (rival->deadline == kNever || (lane != kOverdue && rival->priority != front->priority) || !visit(*rival))
          return;
      if (front) return;
    }
  }
  // The requests of the first lane that have the number of the first request, until `visit` returns false.
  template <class Visit>
  void for_each_equal(Takes which, const Visit& visit) const {
    for (const std::size_t lane : order(which)) {
      Request* const front = lanes_[lane].first();
      for (Request* request = front; request; request = Lane::after(*request))
        if ((lane != kOverdue && request->priority != front->priority) || !visit(*request)) return;
      if (front) return;
    }
  }
  // Whether the rivals are in the order of their deadlines.
  bool rivals_are_sorted(Takes which) const noexcept {
    return which == Takes::kHigh || lanes_[kOverdue].empty() || (!overdue_first_ && has_high());
  }
  // Whether a request that arrives now is the first.
  bool would_be_first(const Request& request) const noexcept;

  // Items that are taken before the request if it arrives now.
  std::size_t items_ahead(const Request& request) const noexcept;

  // Items of one call in a round; a call of at most so many stays together. It does not change while requests wait.
  void set_share(std::size_t items) noexcept { share_ = items; }
  // Batches leave out requests in front of others. Then a round ends when the last of its requests is taken, so that those left
  // behind do not come before later calls in large numbers.
  void set_unordered() noexcept { unordered_ = true; }
  // Requests of one call have the same `call`; `before`: the items of this call that were pushed before.
  void push(Ref<Request> request, Nanoseconds moment, std::uint64_t call, std::size_t before = 0) noexcept;
  // Normal requests that have waited for `aging` are overdue from now on.
  void age(Nanoseconds moment) noexcept;
  // What a batch of at most `max_items` takes: always the first request, if there is one. `one_call`: only requests of its call.
  Cut cut(std::size_t max_items, bool one_call, Takes which = Takes::kAll, Start start = {}) const noexcept;
  // Items at the front that belong to the call of the first request.
  std::size_t items_of_first_call() const noexcept;
  void take(const Cut& cut, RequestChain& taken, Takes which = Takes::kAll) noexcept;
  RequestChain take_all() noexcept;
  // The request of a lane that has waited longest; the lane is not empty.
  Ref<Request> remove_oldest(LaneName lane) noexcept;
  // Removes requests for which `fails` returns true: all, or only those in front of the first `items` others.
  template <class Fails>
  void remove_if(RequestChain& removed, std::size_t items, Takes which, const Fails& fails, Start start = {}) noexcept {
    std::size_t live = 0;
    for_each_from(which, start, [&](std::size_t lane, Request& request) {
      if (live >= items) return false;
      if (fails(request))
        removed.push(remove(lane, request));
      else
        live += request.items;
      return true;
    });
  }
  // Fails a request that expired or was abandoned; true if it did.
  static bool fail_if_expired(Request& request, Nanoseconds moment) noexcept;
  // Removes and fails all such requests.
  void remove_expired(Nanoseconds moment, RequestChain& removed) noexcept {
    remove_if(removed, SIZE_MAX, Takes::kAll, [&](Request& request) { return fail_if_expired(request, moment); });
  }

 private:
  static constexpr std::size_t kOverdue = kLanes;
  struct Order {
    std::array<std::size_t, kLanes + 1> lanes;
    std::size_t count;

    const std::size_t* begin() const noexcept { return lanes.data(); }
    const std::size_t* end() const noexcept { return lanes.data() + count; }
  };

  const Order& order(Takes which = Takes::kAll) const noexcept;
  // Until `visit` returns false. It may remove the request.
  template <class Visit>
  void for_each_from(Takes which, Start start, const Visit& visit) const {
    const bool filters = start.filters();
    for (const std::size_t lane : order(which)) {
      Request* request = lanes_[lane].first();
      if (request && start.first) request = std::exchange(start.first, nullptr);
      for (Request* next = nullptr; request; request = next) {
        next = Lane::after(*request);
        if (filters && start.leaves_out(*request)) continue;
        if (!visit(lane, *request)) return;
      }
    }
  }
  template <class Visit>
  void visit_while(Takes which, const Visit& visit, Start start = {}) const {
    for_each_from(which, start, [&](std::size_t, const Request& request) { return visit(request); });
  }
  Ref<Request> remove(std::size_t lane, Request& request) noexcept;

  std::array<Lane, kLanes + 1> lanes_;
  std::size_t size_ = 0;
  std::size_t items_ = 0;
  std::size_t share_ = SIZE_MAX;
  bool unordered_ = false;
  std::uint64_t round_ = 0;
  std::size_t taken_ = 0;  // items of this round
  Nanoseconds aging_ = kNever;
  bool overdue_first_ = true;  // the last batch had no overdue request
};

}  // namespace hami
