// PolicyTrial: tries two ways to run batches in turn, and keeps to the one by which more gets done. The second has a price that
// does not show in that: it has to do better, and is left as soon as it does worse.
#pragma once

#include <cstddef>

#include "base/clock.hpp"

namespace hami {

class PolicyTrial {
 public:
  // It begins with the first, or with the second.
  explicit PolicyTrial(bool use_alternative = false) noexcept : uses_alternative_(use_alternative) {}
  bool use_alternative() const noexcept { return uses_alternative_ != trying_; }
  // The ways differ for a batch; where they seldom do, a comparison would tell of chance alone.
  void note_difference() noexcept { ++differed_; }
  // A batch of so many items ended so long after the one before, on whatever instance.
  void record_batch(Nanoseconds took, std::size_t items) noexcept;

 private:
  void compare(double rate) noexcept;
  bool better() const noexcept;

  bool uses_alternative_;
  bool trying_ = false;          // the other way
  std::size_t batches_ = 0;      // of this turn
  std::size_t differed_ = 0;
  double took_ = 0;              // by those that are counted
  double items_ = 0;
  double rate_ = 0;              // of the turn before, by the way that is kept
  double gain_ = 0;              // the mean of what the other way was seen to do better of late, as a logarithm
  double spread_ = 0;            // the mean square of how far that was from the mean
  std::size_t comparisons_ = 0;
  std::size_t pause_ = 1;        // turns until the other way is tried again
  std::size_t turns_ = 0;        // of that pause
};

}  // namespace hami
