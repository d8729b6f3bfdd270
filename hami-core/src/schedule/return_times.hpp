// ReturnTimes: how long callers take from a result to their next request, learned from the arrivals, and how many requests are
// therefore expected by when. Requests carry no identity of their caller, so an arrival counts for the oldest result that is
// still open: callers that leave or join shift the pairs, but not the forecast.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/clock.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

class ReturnTimes {
 public:
  void answer(Nanoseconds moment, std::size_t requests) noexcept;
  void arrive(Nanoseconds moment) noexcept;
  bool expects_any() const noexcept { return group_count_ > 0 && known_ > 0; }

  // Calls visit(count, wait) with increasing counts: so many callers are expected to return within `wait`. Ends at `longest`.
  template <class Visit>
  void for_each_return(Nanoseconds moment, Nanoseconds longest, const Visit& visit) const noexcept;

 private:
  static constexpr std::size_t kTimes = policy::kMemory;    // remembered return times
  static constexpr std::size_t kGroups = policy::kSmooths;  // answered batches whose callers are away

  struct Group {
    Nanoseconds answered = 0;
    std::size_t pending = 0;
  };

  void remove_oldest() noexcept;

  std::array<Group, kGroups> groups_{};  // the oldest first
  std::size_t group_count_ = 0;
  std::array<Nanoseconds, kTimes> recent_{}, sorted_{};
  std::size_t known_ = 0, next_ = 0;
};

template <class Visit>
void ReturnTimes::for_each_return(Nanoseconds moment, Nanoseconds longest, const Visit& visit) const noexcept {
  std::array<std::size_t, kGroups> at{};  // the first remembered time that is longer than the group is away
  std::array<double, kGroups> each{};     // callers of the group per remembered time
  const auto end = sorted_.begin() + static_cast<std::ptrdiff_t>(known_);
  for (std::size_t i = 0; i < group_count_; ++i) {
    at[i] = static_cast<std::size_t>(std::upper_bound(sorted_.begin(), end, moment - groups_[i].answered) -
                                     sorted_.begin());
    each[i] = at[i] < known_ ? static_cast<double>(groups_[i].pending) / static_cast<double>(known_ - at[i]) : 0;
  }
  double expected = 0;
  for (std::size_t count = 1;;) {
    std::size_t first = group_count_;
    Nanoseconds wait = longest;
    for (std::size_t i = 0; i < group_count_; ++i)
      if (at[i] < known_)
        if (const Nanoseconds later = groups_[i].answered + sorted_[at[i]] - moment; later < wait) {
          first = i;
          wait = later;
        }
    if (first == group_count_) return;
    expected += each[first];
    ++at[first];
    for (; expected >= static_cast<double>(count) - 0.5; ++count)
      visit(count, wait);  // the median of the count-th return
  }
}

}  // namespace hami
