// TwoWays: turns of batches, the pace of each, and the mean of late of what one way is faster than the other.
#include "schedule/two_ways.hpp"

#include <algorithm>
#include <cmath>

namespace hami {
namespace {

constexpr std::size_t kSettles = 8;     // batches at the begin of a turn that still follow from the turn before
constexpr std::size_t kCounts = 32;     // and those that are counted
constexpr std::size_t kDiffers = 8;     // of a turn: else it tells nothing
constexpr std::size_t kCompares = 4;    // comparisons before the ways may change places
constexpr std::size_t kSmooths = 8;     // comparisons that the mean is of, about; then, or when it is clear, they become rare
constexpr std::size_t kRarest = 128;    // turns between two of them at most
constexpr double kGain = 0.03;          // by which the other way has to be faster, as a logarithm
constexpr double kMostGain = 0.3;       // more is no work of the ways

}  // namespace

void TwoWays::ran(Nanoseconds took, double expected) noexcept {
  if (++batches_ <= kSettles) return;
  took_ += static_cast<double>(took);
  expected_ += expected;
  if (batches_ < kSettles + kCounts) return;
  const bool tells = differed_ >= kDiffers;
  const double pace = expected_ / std::max(1.0, took_);
  batches_ = differed_ = 0;
  took_ = expected_ = 0;
  if (trying_) {
    trying_ = false;
    if (tells) compare(pace);
  } else {
    pace_ = pace;
    turns_ = std::min(turns_ + 1, pause_);
    trying_ = tells && turns_ == pause_;
  }
}

void TwoWays::compare(double pace) noexcept {
  turns_ = 0;
  ++comparisons_;
  const double gain = std::clamp(std::log(pace / pace_), -kMostGain, kMostGain);
  gain_ += (gain - gain_) / static_cast<double>(std::min(comparisons_, kSmooths));
  if (comparisons_ >= kCompares && gain_ > kGain) {
    kept_ = !kept_;
    gain_ = -gain_;
    pause_ = 1;
  } else if (comparisons_ >= kSmooths || gain_ < -kGain) {
    pause_ = std::min(2 * pause_, kRarest);
  }
}

}  // namespace hami
