// PolicyTrial: runs two policies in alternating rounds of batches, a baseline and an alternative, and keeps the one with the
// lower latency. In a closed loop, a lower latency is also a higher throughput (Little's law). Then it tries the other one
// again now and then. A round is compared with the rounds before and after it, so that a change of load cancels out.
#pragma once

#include <cstddef>

#include "base/clock.hpp"

namespace hami {

class PolicyTrial {
 public:
  bool use_alternative() const noexcept { return uses_alternative_ != trying_; }
  // The policies differ for a batch. Rounds without a difference are not compared: the result would be chance.
  void note_difference() noexcept { differed_ = true; }
  // A batch ended; `latency`: the mean time since its requests arrived.
  void record_batch(Nanoseconds latency, std::size_t requests) noexcept;

 private:
  void compare(double gain) noexcept;

  bool uses_alternative_ = false;
  bool trying_ = false;      // the other policy runs for this round
  bool differed_ = false;    // in this round or the one before
  std::size_t batches_ = 0;  // of this round
  double latency_ = 0, requests_ = 0;
  double tried_ = 0;              // mean latency of the round that tried the other policy; 0: none
  double kept_ = 0;               // mean latency of the last round with the kept policy
  double gain_ = 0, spread_ = 0;  // of the other policy, as a logarithm: mean and mean squared deviation
  std::size_t comparisons_ = 0;
  std::size_t rounds_ = 0, pause_ = 1;  // with the kept policy since the last trial, and until the next one
};

}  // namespace hami
