// ReturnTimes: pairs arrivals with answers, and keeps the last return times.
#include "schedule/return_times.hpp"

namespace hami {

void ReturnTimes::answer(Nanoseconds moment, std::size_t requests) noexcept {
  if (requests == 0) return;
  if (group_count_ == kGroups) remove_oldest();
  groups_[group_count_++] = {moment, requests};
}

void ReturnTimes::arrive(Nanoseconds moment) noexcept {
  if (group_count_ == 0) return;
  const Nanoseconds time = std::max<Nanoseconds>(0, moment - groups_[0].answered);
  if (--groups_[0].pending == 0) remove_oldest();
  auto end = sorted_.begin() + static_cast<std::ptrdiff_t>(known_);
  if (known_ == kTimes) {
    const auto oldest = std::lower_bound(sorted_.begin(), end, recent_[next_]);
    std::move(oldest + 1, end, oldest);
    --end;
  } else {
    ++known_;
  }
  const auto place = std::upper_bound(sorted_.begin(), end, time);
  std::move_backward(place, end, end + 1);
  *place = time;
  recent_[next_] = time;
  next_ = (next_ + 1) % kTimes;
}

void ReturnTimes::remove_oldest() noexcept {
  std::move(groups_.begin() + 1, groups_.end(), groups_.begin());
  --group_count_;
}

}  // namespace hami
