// NormalWork: how much of a node normal requests may use. `reserve` instances stay free of them. While high or urgent requests
// come, their batches end within `max_wait`, as far as the learned time says.
#pragma once

#include <cstddef>
#include <utility>

#include "base/clock.hpp"
#include "observe/lane_name.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

class NormalWork {
 public:
  void set_reserve(std::size_t instances) noexcept { reserve_ = instances; }
  std::size_t reserve() const noexcept { return reserve_; }
  void set_max_wait(Nanoseconds longest) noexcept { max_wait_ = longest; }  // 0: any
  Nanoseconds max_wait() const noexcept { return max_wait_; }

  void record_arrival(LaneName lane) noexcept { high_arrived_ = high_arrived_ || lane != kNormalLane; }
  void observe(Nanoseconds moment) noexcept {
    if (std::exchange(high_arrived_, false)) high_until_ = after(moment, policy::kHighTraffic);
    short_ = max_wait_ > 0 && moment < high_until_;
  }
  // Whether batches with normal requests must be short now.
  bool is_short() const noexcept { return short_ || (max_wait_ > 0 && high_arrived_); }

  void start() noexcept { ++running_; }
  void end() noexcept { --running_; }
  // How many of `instances` may start a batch with normal requests, while `running` of them run one.
  std::size_t free(std::size_t instances, std::size_t running) const noexcept {
    return instances > running + reserve_ ? instances - running - reserve_ : 0;
  }
  std::size_t free(std::size_t instances) const noexcept { return free(instances, running_); }

 private:
  std::size_t reserve_ = 0;
  std::size_t running_ = 0;  // batches with normal requests
  Nanoseconds max_wait_ = 0;
  bool high_arrived_ = false;  // since the last `observe`
  bool short_ = false;
  Nanoseconds high_until_ = 0;
};

}  // namespace hami
