// PolicyTrial: the turns of the current policy and its alternatives, one at a time, in alternating rounds of batches. It adopts an
// alternative that costs less, and tries the others again now and then. A round is compared with the rounds before and after it,
// so that a change of load cancels out.
//
// The cost of a hold is latency: in a closed loop, a lower latency is also a higher throughput (Little's law). The cost of a number
// of instances is the time for which the node has work, for each item: it changes at once, while a long queue delays the
// latency.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "schedule/comparison.hpp"

namespace hami {

class PolicyTrial {
 public:
  // A difference from the current policy.
  enum Alternative : std::size_t {
    kHold,           // batches are held for returning callers, or start at once
    kMoreInstances,  // more instances run at a time
    kFewerInstances,
    kAlternatives
  };
  // Of one or more batches, in nanoseconds.
  struct Cost {
    double latency = 0;  // since the requests arrived: the sum over the items
    double worked = 0;   // since the batch that ended before, without the time in which the node had no work
    double items = 0;

    double of(Alternative alternative) const noexcept {  // of an item
      return std::max(1.0, (alternative == kHold ? latency : worked) / items);
    }
  };

  std::optional<Alternative> trying() const noexcept { return trying_; }
  const Comparison& result(Alternative alternative) const noexcept { return turns_[alternative].result; }
  // The alternative differs for a batch. Rounds without a difference are not compared: the result would be chance.
  void note_difference(Alternative alternative) noexcept { turns_[alternative].differed = true; }
  // A batch ended; `instances`: how many run at a time. Returns the alternative that replaces the current policy from now on; empty:
  // none.
  std::optional<Alternative> record_batch(const Cost& batch, std::size_t instances = 1) noexcept {
    const std::size_t round = policy::kRound * instances;
    if (++batches_ <= round / 3) return std::nullopt;
    cost_ = {cost_.latency + batch.latency, cost_.worked + batch.worked, cost_.items + batch.items};
    if (batches_ < round) return std::nullopt;
    batches_ = 0;
    const Cost cost = std::exchange(cost_, Cost());
    if (std::exchange(trying_, std::nullopt)) {
      tried_ = cost;
      return std::nullopt;
    }
    const Cost before = std::exchange(kept_, cost), tried = std::exchange(tried_, Cost());
    if (tried.items > 0 && is_better(std::log(std::sqrt(before.of(last_) * cost.of(last_)) / tried.of(last_))))
      return adopt(last_);
    choose_next();
    return std::nullopt;
  }

 private:
  struct Turns {
    Comparison result;
    bool differed = false;  // since it was considered last
    std::size_t pause = 1;  // rounds with the current policy between two trials
    std::size_t due = 0;    // their number at the next trial
  };

  bool is_better(double gain) noexcept {
    Turns& turns = turns_[last_];
    turns.result.add(gain);
    if (turns.result.is_decided())
      turns.pause = std::clamp(2 * turns.pause, policy::kTrialEvery / 2, policy::kTrialEvery);
    turns.due = rounds_ + turns.pause;
    return turns.result.prefers_alternative();
  }

  // The way back is known too; what lies beyond is not.
  Alternative adopt(Alternative alternative) noexcept {
    Turns back = std::exchange(turns_[alternative], Turns());
    back.result = back.result.reversed();
    turns_[alternative == kHold ? kHold : alternative == kMoreInstances ? kFewerInstances : kMoreInstances] = back;
    return alternative;
  }

  // The next alternative after the last one that differs and whose pause is over.
  void choose_next() noexcept {
    ++rounds_;
    for (std::size_t i = 0; i < kAlternatives && !trying_; ++i) {
      last_ = static_cast<Alternative>((last_ + 1) % kAlternatives);
      if (std::exchange(turns_[last_].differed, false) && rounds_ >= turns_[last_].due) trying_ = last_;
    }
  }

  std::array<Turns, kAlternatives> turns_;
  std::optional<Alternative> trying_;  // runs for this round
  Alternative last_ = kHold;           // that was tried
  std::size_t batches_ = 0;            // of this round
  std::size_t rounds_ = 0;             // with the current policy
  Cost cost_, kept_, tried_;           // of this round; of the last ones with the current policy and with `last_`
};

}  // namespace hami
