// PolicyTrial: turns of batches, the rate of each, and the mean of late of what one way does better than the other.
#include "schedule/policy_trial.hpp"

#include <algorithm>
#include <cmath>

namespace hami {
namespace {

constexpr std::size_t kSettles = 8;   // batches at the begin of a turn that still follow from the turn before
constexpr std::size_t kCounts = 32;   // and those that are counted
constexpr std::size_t kDiffers = 8;   // of a turn: else it tells nothing
constexpr std::size_t kCompares = 4;  // comparisons before the ways may change places
constexpr std::size_t kSmooths = 8;   // comparisons that the mean is of, about; then they become rare, where it is clear sooner
constexpr std::size_t kRarest = 128;  // turns between two of them at most
constexpr double kGain = 0.03;        // what the second way has to do better, as a logarithm
constexpr double kLoss = 0.01;        // what the first has to do better where the second is kept
constexpr double kMostGain = 0.3;     // more is no work of the ways
constexpr double kSure = 3;           // so many standard errors from none

}  // namespace

void PolicyTrial::record_batch(Nanoseconds took, std::size_t items) noexcept {
  if (++batches_ <= kSettles) return;
  took_ += static_cast<double>(took);
  items_ += static_cast<double>(items);
  if (batches_ < kSettles + kCounts) return;
  const bool tells = differed_ >= kDiffers;
  const double rate = items_ / std::max(1.0, took_);
  batches_ = differed_ = 0;
  took_ = items_ = 0;
  if (trying_) {
    trying_ = false;
    if (tells) compare(rate);
  } else {
    rate_ = rate;
    turns_ = std::min(turns_ + 1, pause_);
    trying_ = tells && turns_ == pause_;
  }
}

void PolicyTrial::compare(double rate) noexcept {
  turns_ = 0;
  ++comparisons_;
  const double gain = std::clamp(std::log(rate / rate_), -kMostGain, kMostGain), off = gain - gain_;
  const double weight = 1 / static_cast<double>(std::min(comparisons_, kSmooths));
  gain_ += weight * off;
  spread_ += weight * ((1 - weight) * off * off - spread_);
  if (comparisons_ >= kCompares && better()) {
    uses_alternative_ = !uses_alternative_;
    gain_ = -gain_;
    pause_ = 1;
  } else if (gain > kGain) {
    pause_ = std::max<std::size_t>(1, pause_ / 2);
  } else if (gain_ < -kGain) {
    pause_ = std::min(4 * pause_, kRarest);
  } else if (comparisons_ >= kSmooths) {
    pause_ = std::min(2 * pause_, kRarest);
  }
}

bool PolicyTrial::better() const noexcept {
  const double count = static_cast<double>(std::min(comparisons_, kSmooths));
  return gain_ > (uses_alternative_ ? kLoss : kGain) && gain_ > kSure * std::sqrt(spread_ / count);
}

}  // namespace hami
