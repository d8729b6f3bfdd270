// NodeScheduler: deadlines: which requests are admitted, which cannot end in time, and which of the others run while not all can.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "lang/api.hpp"
#include "schedule/node_scheduler.hpp"

namespace hami {
namespace {

// Caches the last of the times that it was asked for: most requests of a queue have equally many items.
template <class Time>
class Cached {
 public:
  explicit Cached(const Time& time) : time_(time) {}
  double operator()(std::size_t items) {
    if (items != items_) value_ = time_(items_ = items);
    return value_;
  }

 private:
  const Time& time_;
  std::size_t items_ = 0;
  double value_ = 0;
};

// Whether a request must end before its deadline to be useful. A caller that takes parts can use the earlier ones.
bool needs_its_end(const Request& request) noexcept { return request.deadline != kNever && !request.has_listener(); }

// `rounded` keeps two durations apart that a message compares.
std::string shown(double nanoseconds, double (*rounded)(double)) {
  const double milliseconds = nanoseconds / 1e6;
  return show_duration(milliseconds < 10 ? rounded(milliseconds * 100) / 100 : rounded(milliseconds));
}

Error late_error(const std::string& node, double least, bool has_more, Nanoseconds left) noexcept {
  return error_from([&] {
    return Error(ErrorCode::kDeadlineExceeded,
                 Error::timed_out().message() + ": node \"" + node +
                     "\" did not run this request, which takes at least " + shown(least, std::ceil) +
                     (has_more ? " until the last node has run it, because " : ", because ") +
                     shown(static_cast<double>(std::max<Nanoseconds>(0, left)), std::floor) +
                     " were left; raise the timeout, or send fewer requests at a time");
  });
}

}  // namespace

// A lower bound: the requests ahead run in full batches on all instances, and its own batch has no other request.
Nanoseconds NodeScheduler::earliest_end(const Request& request, Nanoseconds moment) const noexcept {
  const std::optional<double> own = times_.of(request.items);
  if (!own) return 0;
  const bool normal = lane_of(request.priority) == kNormalLane, reserved = normal && free_for_normal() == 0;
  Nanoseconds start = free_instances() > 0 && !reserved ? moment : kNever;
  for (const Instance& instance : instances_)
    if (instance.normal || !reserved) start = std::min(start, std::max(moment, instance.ends));
  const std::size_t target = target_batch_size(), full = target > 0 ? target : config_.batching.max;
  const std::size_t workers = normal ? free_for_normal(instances_in_use(), 0) : instances_in_use();
  const double rounds = static_cast<double>(queue_.items_ahead(request) / full / workers);
  return after(start, to_nanoseconds(rounds * *times_.of(full) + *own * to_usual(request.items, request.cost)));
}

// Now and then it admits one that cannot end in time: otherwise a node that was slow for a while would never learn that it is
// fast again.
bool NodeScheduler::admits(const Request& request, Nanoseconds moment) noexcept {
  if (!config_.by_deadline || request.deadline == kNever || earliest_end(request, moment) <= request.deadline)
    return true;
  return ++unreachable_ % policy::kAdmitsOneIn == 0;
}

// The least time of the smallest batch that such a request can be in; 0: not certain.
double NodeScheduler::least_time(std::size_t items, Nanoseconds moment) const noexcept {
  return times_.certain(alike_ ? std::max(items, min_items(0)) : items, moment);
}

bool NodeScheduler::fail_if_late(Request& request, Nanoseconds moment) const noexcept {
  if (!needs_its_end(request)) return false;
  const double least = least_time(request.items, moment) * to_usual(request.items, request.cost);
  return fail_if_over(request, least, TimeAfter(moment)(request), moment);
}

bool NodeScheduler::fail_if_over(Request& request, double least, const LearnedTime& after,
                                 Nanoseconds moment) const noexcept {
  const Nanoseconds left = request.deadline - moment;
  const double whole = least + after.certain;
  if (whole <= static_cast<double>(left) || whole == 0) return false;
  request.fail(late_error(node_, whole, after.certain > 0, left));
  return true;
}

void NodeScheduler::remove_late(Nanoseconds moment, RequestChain& removed, std::size_t items, Takes which) noexcept {
  const auto time = [&](std::size_t count) { return least_time(count, moment); };
  Cached least(time);
  TimeAfter time_after(moment);
  queue_.remove_if(removed, items, which, [&](Request& request) {
    return RequestQueue::fail_if_expired(request, moment) ||
           (needs_its_end(request) &&
            fail_if_over(request, least(request.items) * to_usual(request.items, request.cost), time_after(request),
                         moment));
  });
}

// The batch itself while all requests can end in time; then it may have to be smaller, for the sake of its first one.
NodeScheduler::Cut NodeScheduler::in_time(const Cut& batch, Takes which, std::size_t most, std::size_t min_items,
                                          Nanoseconds moment) noexcept {
  const Request& front = *queue_.first(which);
  if (front.deadline == kNever || !alike_ || stopping_) return batch;
  const std::optional<TimeRange> whole = times_.range(batch.items, moment);
  if (!whole) return batch;
  TimeAfter time_after(moment);
  const double left = time_after.left(front, &TimeRange::usual);
  Cut first = batch;
  if (whole->usual > left) {
    const std::size_t least = std::max(front.items, min_items);
    first = cut(items_within(to_nanoseconds(left), least, std::max(batch.items, least),
                             [&](std::size_t items) { return times_.range(items, moment)->usual; }),
                which);
  }
  if (all_end_in_time(batch, which, first, time_after, moment)) return first;
  const std::size_t limit = config_.batching.mode == BatchingMode::kPerCall ? batch.items : most;
  for (double TimeRange::* const part : {&TimeRange::most, &TimeRange::usual, &TimeRange::least})
    if (const std::optional<Cut> best = best_in_time(which, limit, min_items, time_after, moment, part)) return *best;
  return batch;
}

// Whether the requests end in time if `first` runs now, and then batches of the size of `batch` in their order.
bool NodeScheduler::all_end_in_time(const Cut& batch, Takes which, const Cut& first, TimeAfter& time_after,
                                    Nanoseconds moment) const noexcept {
  const double whole = times_.range(batch.items, moment)->usual;
  const double part = first.items == batch.items ? whole : times_.range(first.items, moment)->usual;
  const std::size_t normal = free_for_normal(instances_in_use(), 0);
  const double instances =
      static_cast<double>(std::max<std::size_t>(1, which == Takes::kHigh ? instances_in_use() : normal));
  const auto end_of = [&](std::size_t item) {  // the batches of the instances start evenly spaced
    if (item <= first.items) return part;
    const std::size_t before = (item - first.items - 1) / batch.items;
    return (part + static_cast<double>(before) * whole) / instances + whole;
  };
  const double left = time_after.left(*queue_.first(which), &TimeRange::usual);
  if (queue_.rivals_are_sorted(which) && end_of(queue_.items()) <= left) return true;
  std::size_t items = 0;
  bool in_time = true;
  queue_.for_each_rival(which, [&](const Request& request) {
    items += request.items;
    return in_time = end_of(items) <= time_after.left(request, &TimeRange::usual);
  });
  return in_time;
}

// The largest batch of at most `most` items all of whose requests end in time, if each takes that part of the learned times. Among several
// of that size any, with the same chance: the first in order, or the last, would favour callers who ask just before, or just after,
// another one.
std::optional<NodeScheduler::Cut> NodeScheduler::best_in_time(Takes which, std::size_t most, std::size_t min_items,
                                                              TimeAfter& time_after, Nanoseconds moment,
                                                              double TimeRange::* part) noexcept {
  const auto time = [&](std::size_t items) { return (*times_.range(items, moment)).*part; };
  Cached alone(time), together(time);
  std::size_t behind = 0;
  queue_.for_each_rival(which, [&](const Request& request) {
    behind += request.items;
    return true;
  });
  std::size_t size = 0, best = 0;
  std::uint32_t equal = 0;
  Request* chosen = nullptr;
  queue_.for_each_rival(which, [&](Request& request) {
    const std::size_t least = std::max(request.items, min_items), others = behind;
    const double left = time_after.left(request, part);
    behind -= request.items;
    if (others < least || alone(least) > left) return true;
    const std::size_t limit = std::max(least, std::min(most, others));
    size = std::clamp(size, least, limit);
    if (together(size) > left || size < limit)
      size = items_within(to_nanoseconds(left), together(size) > left ? least : size, limit, time);
    if (size > best) equal = 0;
    if (size < best) return true;
    best = size;
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 17U;
    random_ ^= random_ << 5U;
    if (random_ % ++equal == 0) chosen = &request;
    return true;
  });
  if (!chosen) return std::nullopt;
  const double ends = time(best) + time_after(*chosen).range.*part;
  const Cut found = cut(best, which, {chosen, after(moment, to_nanoseconds(ends))});
  return found.items >= min_items ? std::optional(found) : std::nullopt;
}

SharedTime::Estimate NodeScheduler::estimate(std::size_t items, Nanoseconds moment) const noexcept {
  if (costs_) return {};  // the cost of a request is not known before it is here
  return times_.estimate(alike_ ? min_items(0) : 1, items, moment);
}

// Until when a batch may wait for others without a loss: its first request would end late.
Nanoseconds NodeScheduler::latest_start(const Cut& batch, Nanoseconds moment) const noexcept {
  const Request* const front = queue_.first();
  if (front->deadline == kNever) return kNever;
  const std::optional<TimeRange> range = times_.range(batch.items, moment);
  if (!range) return kNever;
  return after(moment, to_nanoseconds(TimeAfter(moment).left(*front, &TimeRange::most) - range->most));
}

}  // namespace hami
