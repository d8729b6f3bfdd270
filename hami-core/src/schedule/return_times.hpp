// ReturnTimes: how long callers take from a result to their next request, learned from the arrivals, and how many requests are
// therefore expected by when. Requests carry no identity of their caller, so an arrival counts for the oldest result that is
// still open: callers that leave or join shift the pairs, but not the forecast.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/clock.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

class ReturnTimes {
 public:
  ReturnTimes() {  // it allocates nothing later
    groups_.reserve(policy::kSmooths);
    times_.reserve(policy::kMemory);
  }
  void answer(Nanoseconds moment, std::size_t requests) noexcept {
    if (requests == 0) return;
    if (groups_.size() == policy::kSmooths) groups_.erase(groups_.begin());
    groups_.push_back({moment, requests});
  }
  void arrive(Nanoseconds moment) noexcept {
    if (groups_.empty()) return;
    const Nanoseconds time = std::max<Nanoseconds>(0, moment - groups_.front().answered);
    if (--groups_.front().pending == 0) groups_.erase(groups_.begin());
    Nanoseconds& oldest = recent_[arrivals_++ % policy::kMemory];
    if (times_.size() == policy::kMemory) times_.erase(std::lower_bound(times_.begin(), times_.end(), oldest));
    oldest = time;
    times_.insert(std::upper_bound(times_.begin(), times_.end(), time), time);
  }
  // Calls visit(count, wait) with increasing counts: so many callers are expected to return within `wait`. Ends at `longest`.
  // Of a group that is away for some time, only the remembered times that are longer count.
  template <class Visit>
  void for_each_return(Nanoseconds moment, Nanoseconds longest, const Visit& visit) const noexcept {
    std::array<std::size_t, policy::kSmooths> over{}, at{};  // of each group, how many remembered times are over
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
  struct Group {  // of callers who were answered together and are away
    Nanoseconds answered;
    std::size_t pending;
  };
  std::vector<Group> groups_;                          // the oldest first
  std::array<Nanoseconds, policy::kMemory> recent_{};  // return times, in a ring
  std::vector<Nanoseconds> times_;                     // the same, the shortest first
  std::size_t arrivals_ = 0;
};

}  // namespace hami
