// TwoWays: tries two ways to run batches in turn, and keeps to the one by which they take less time.
#pragma once

#include <cstddef>

#include "base/clock.hpp"

namespace hami {

class TwoWays {
 public:
  // It begins with the second way, or with the first.
  explicit TwoWays(bool second) : kept_(second) {}

  bool second() const noexcept { return kept_ != trying_; }
  // The ways differ for a batch; where they seldom do, a comparison would tell of chance alone.
  void differ() noexcept { ++differed_; }
  // A batch has kept its instance for so long, and may be expected to, for its size, in any unit.
  void ran(Nanoseconds took, double expected) noexcept;

 private:
  void compare(double pace) noexcept;

  bool kept_;
  bool trying_ = false;         // the other way
  std::size_t batches_ = 0;     // of this turn
  std::size_t differed_ = 0;
  double took_ = 0;             // by those that are counted
  double expected_ = 0;
  double pace_ = 0;             // of the turn before, by the way that is kept: expected time a time
  double gain_ = 0;             // the mean of what the other way was seen to be faster, as a logarithm
  std::size_t comparisons_ = 0;
  std::size_t pause_ = 1;       // turns until the other way is tried again
  std::size_t turns_ = 0;       // of that pause
};

}  // namespace hami
