// When a batch starts and how large it is: the formulas, without a clock, and the return times that they use.
// hami-core/docs/explanation/adaptive-batching.md derives the formulas.
//
// Start. n requests are ready, an instance is free, and k answered callers are expected back within w. One batch of n + k after w
// completes more requests per time than a batch of n now, iff
//
//   (n + k) / (w + t(n + k)) > n / t(n),    which is    n * w < k * beta    for    t(b) = alpha * b + beta.
//
// The batch is held for the k with the highest rate. It waits at most twice as long as estimated, never longer than the wait may
// cost (k * beta / n), and all its holds together last at most beta.
//
// Size. All that is ready, up to the smallest size whose time per item is within 2 % of the best known. While high requests come,
// a batch with normal ones has at most the items that end within max_wait: b = (max_wait - beta) / alpha.
//
// Deadlines. A node does not run a request that cannot end before its deadline by the learned times; while not all that wait can end
// in time, it runs the largest batch that can, chosen by chance among equals (deadlines.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "request/api.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

// How long callers take from a result to their next request, learned from the arrivals, and how many requests are therefore
// expected by when. Requests carry no identity of their caller, so an arrival counts for the oldest result that is still open:
// callers that leave or join shift the pairs, but not the forecast.
class ReturnTimes {
 public:
  ReturnTimes() {  // it allocates nothing later
    groups_.reserve(policy::kGroups);
    times_.reserve(policy::kReturnTimes);
  }
  void answer(Nanoseconds moment, std::size_t requests) noexcept {
    if (requests == 0) return;
    if (groups_.size() == policy::kGroups) groups_.erase(groups_.begin());
    groups_.push_back({moment, requests});
  }
  void arrive(Nanoseconds moment) noexcept {
    if (groups_.empty()) return;
    const Nanoseconds time = std::max<Nanoseconds>(0, moment - groups_.front().answered);
    if (--groups_.front().pending == 0) groups_.erase(groups_.begin());
    Nanoseconds& oldest = recent_[arrivals_++ % policy::kReturnTimes];
    if (times_.size() == policy::kReturnTimes) times_.erase(std::lower_bound(times_.begin(), times_.end(), oldest));
    oldest = time;
    times_.insert(std::upper_bound(times_.begin(), times_.end(), time), time);
  }
  // Calls visit(count, wait) with increasing counts: so many callers are expected to return within `wait`. Ends at `longest`.
  // Of a group that is away for some time, only the remembered times that are longer count.
  template <class Visit>
  void for_each_return(Nanoseconds moment, Nanoseconds longest, const Visit& visit) const noexcept {
    std::array<std::size_t, policy::kGroups> over{}, at{};  // of each group, how many remembered times are over
    for (std::size_t i = 0; i < groups_.size(); ++i)
      over[i] = at[i] = static_cast<std::size_t>(
          std::upper_bound(times_.begin(), times_.end(), moment - groups_[i].answered) - times_.begin());
    double expected = 0;
    for (std::size_t count = 1;;) {
      std::size_t next = groups_.size();  // the group whose next caller returns first
      Nanoseconds wait = longest;
      for (std::size_t i = 0; i < groups_.size(); ++i)
        if (at[i] < times_.size() && groups_[i].answered + times_[at[i]] - moment < wait) {
          next = i;
          wait = groups_[i].answered + times_[at[i]] - moment;
        }
      if (next == groups_.size()) return;
      ++at[next];
      expected += static_cast<double>(groups_[next].pending) / static_cast<double>(times_.size() - over[next]);
      for (; expected >= static_cast<double>(count) - 0.5; ++count)
        visit(count, wait);  // the median of the count-th return
    }
  }

 private:
  struct Group {  // callers whose answers came together, and that have not called again
    Nanoseconds answered;
    std::size_t pending;
  };
  std::vector<Group> groups_;                               // the oldest first
  std::array<Nanoseconds, policy::kReturnTimes> recent_{};  // return times, in a ring
  std::vector<Nanoseconds> times_;                          // the same, the shortest first
  std::size_t arrivals_ = 0;
};

struct Hold {
  std::size_t requests = 0;  // for how many further requests the batch waits; 0: it starts now
  Nanoseconds timeout = 0;   // how long at most
};

struct Ready {
  std::size_t requests = 0, items = 0;  // that the batch has
  std::size_t max_items = 1;            // that it may have
  double items_each = 1;                // of a request, on average
  Nanoseconds free = 0;                 // how long the instance has been free
  Nanoseconds deadline = kNever;        // time until the first deadline
};

// `beta`: what a batch of any size costs; `time`: of a batch of so many items; both in nanoseconds.
template <class Time>
Hold hold_for_returns(const ReturnTimes& returns, const Ready& ready, Nanoseconds moment, double beta,
                      const Time& time) noexcept {
  const Nanoseconds left = to_nanoseconds(beta) - ready.free;
  const double n = static_cast<double>(ready.requests), items = static_cast<double>(ready.items);
  double best = n > 0 ? n / time(items) : 0;
  Hold hold;
  returns.for_each_return(moment, left, [&](std::size_t count, Nanoseconds wait) {
    const double k = static_cast<double>(count), more = k * ready.items_each, after = time(items + more);
    const double rate = (n + k) / (static_cast<double>(wait) + after);
    const Nanoseconds in_time = ready.deadline - to_nanoseconds(after);
    if (rate <= best || items + more > static_cast<double>(ready.max_items) || in_time < wait) return;
    best = rate;
    const Nanoseconds cost = n > 0 ? to_nanoseconds(k * beta / n) : left;
    hold = {count, std::min({policy::kUncertain * wait, left, cost, in_time})};
  });
  return hold;
}

// The most items whose predicted time is within `limit`, but at least `floor` and at most `cap`.
template <class Time>
std::size_t items_within(Nanoseconds limit, std::size_t floor, std::size_t cap, const Time& time) noexcept {
  std::size_t fits = std::min(floor, cap), above = cap + 1;
  while (fits + 1 < above) {
    const std::size_t middle = fits + (above - fits) / 2;
    (time(middle) <= static_cast<double>(limit) ? fits : above) = middle;
  }
  return fits;
}

// The moving mean of a quantity after another value; 0: there was none.
inline double moving_mean(double mean, double value) noexcept {
  return mean > 0 ? mean + (value - mean) / static_cast<double>(policy::kMeanOf) : value;
}

}  // namespace hami
