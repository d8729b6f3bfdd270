// PolicyTrial: rounds of batches, the throughput of each, and the recent mean gain of the alternative.
#include "schedule/policy_trial.hpp"

#include <algorithm>
#include <cmath>

namespace hami {
namespace {

// All counts are in batches, rounds or comparisons; gains are natural logarithms of throughput ratios.
constexpr std::size_t kSettles = 8;  // batches at the start of a round that are still affected by the previous round
constexpr std::size_t kCounts = 32;  // batches of a round that are measured
constexpr std::size_t kDiffers = 8;  // batches of a round for which the policies must differ, or the round says nothing
constexpr std::size_t kCompares = 4;             // comparisons before the policies may be exchanged
constexpr std::size_t kSmoothedComparisons = 8;  // comparisons in the moving mean; then they become rare
constexpr std::size_t kMaxPause = 128;           // rounds between two comparisons at most
constexpr double kGain = 0.03;                   // the alternative must win by this margin, because it adds latency
constexpr double kLoss = 0.01;                   // and is dropped when the baseline is better by this margin
constexpr double kMaxGain = 0.3;                 // a larger gain is not caused by the policy
constexpr double kSure = 3;                      // standard errors from zero

}  // namespace

void PolicyTrial::record_batch(Nanoseconds took, std::size_t items) noexcept {
  if (++batches_ <= kSettles) return;
  took_ += static_cast<double>(took);
  items_ += static_cast<double>(items);
  if (batches_ < kSettles + kCounts) return;
  const bool is_valid = differed_ >= kDiffers;
  const double rate = items_ / std::max(1.0, took_);
  batches_ = differed_ = 0;
  took_ = items_ = 0;
  if (trying_) {
    trying_ = false;
    if (is_valid) compare(rate);
  } else {
    rate_ = rate;
    rounds_ = std::min(rounds_ + 1, pause_);
    trying_ = is_valid && rounds_ == pause_;
  }
}

void PolicyTrial::compare(double rate) noexcept {
  rounds_ = 0;
  ++comparisons_;
  const double gain = std::clamp(std::log(rate / rate_), -kMaxGain, kMaxGain), off = gain - gain_;
  const double weight = 1 / static_cast<double>(std::min(comparisons_, kSmoothedComparisons));
  gain_ += weight * off;
  spread_ += weight * ((1 - weight) * off * off - spread_);
  if (comparisons_ >= kCompares && better()) {
    uses_alternative_ = !uses_alternative_;
    gain_ = -gain_;
    pause_ = 1;
  } else if (gain > kGain) {
    pause_ = std::max<std::size_t>(1, pause_ / 2);
  } else if (gain_ < -kGain) {
    pause_ = std::min(4 * pause_, kMaxPause);
  } else if (comparisons_ >= kSmoothedComparisons) {
    pause_ = std::min(2 * pause_, kMaxPause);
  }
}

bool PolicyTrial::better() const noexcept {
  const double count = static_cast<double>(std::min(comparisons_, kSmoothedComparisons));
  return gain_ > (uses_alternative_ ? kLoss : kGain) && gain_ > kSure * std::sqrt(spread_ / count);
}

}  // namespace hami
