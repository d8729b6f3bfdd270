// PolicyTrial: alternates two batching policies, a baseline and an alternative, and keeps the one with the higher throughput.
// The alternative must win by a margin because it adds latency.
#pragma once

#include <cstddef>

#include "base/clock.hpp"

namespace hami {

class PolicyTrial {
 public:
  // Starts with the alternative if `use_alternative`.
  explicit PolicyTrial(bool use_alternative = false) noexcept : uses_alternative_(use_alternative) {}
  bool use_alternative() const noexcept { return uses_alternative_ != trying_; }
  // The policies differ for a batch. Rounds in which they rarely differ are not compared: the result would be chance.
  void note_difference() noexcept { ++differed_; }
  // A batch of `items` ended `took` after the previous one, on any instance.
  void record_batch(Nanoseconds took, std::size_t items) noexcept;

 private:
  void compare(double rate) noexcept;
  bool better() const noexcept;

  bool uses_alternative_;
  bool trying_ = false;      // the other policy runs for this round
  std::size_t batches_ = 0;  // of this round
  std::size_t differed_ = 0;
  double took_ = 0;  // by the measured batches, in nanoseconds
  double items_ = 0;
  double rate_ = 0;    // of the previous round, with the kept policy
  double gain_ = 0;    // recent mean gain of the other policy, as a logarithm
  double spread_ = 0;  // recent mean squared deviation of the gain
  std::size_t comparisons_ = 0;
  std::size_t pause_ = 1;   // rounds until the other policy is tried again
  std::size_t rounds_ = 0;  // rounds of the current pause
};

}  // namespace hami
