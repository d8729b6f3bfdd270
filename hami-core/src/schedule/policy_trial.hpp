// PolicyTrial: compares alternatives with the current policy, one at a time, in alternating rounds of batches, and adopts one that
// costs less. The others are tried again now and then. A round is compared with the rounds before and after it, so that a change of
// load cancels out.
//
// The cost of a hold is latency: in a closed loop, a lower latency is also a higher throughput (Little's law). The cost of a number
// of instances is the time for which the node has work, for each item: it changes at once, while a long queue delays the
// latency.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/clock.hpp"

namespace hami {

// A difference from the current policy.
enum class Alternative {
  kHold,           // batches are held for returning callers, or start at once
  kMoreInstances,  // more instances run at a time
  kFewerInstances,
};

class PolicyTrial {
 public:
  bool tries(Alternative alternative) const noexcept { return trying_ == alternative; }
  // The alternative differs for a batch. Rounds without a difference are not compared: the result would be chance.
  void note_difference(Alternative alternative) noexcept { at(alternative).differed = true; }
  struct Batch {
    Nanoseconds latency = 0;  // the mean time since its requests arrived
    std::size_t requests = 0, items = 0;
    Nanoseconds worked = 0;  // since the batch that ended before it, without the time in which the node had no work
  };
  // A batch ended; `instances`: how many run at a time. Returns the alternative that replaces the current policy from now on; empty:
  // none.
  std::optional<Alternative> record_batch(const Batch& batch, std::size_t instances = 1) noexcept;

 private:
  struct Record {
    bool differed = false;        // in this round or the one before
    double gain = 0, spread = 0;  // as a logarithm: mean and mean squared deviation
    std::size_t comparisons = 0;
    std::size_t rounds = 0, pause = 1;  // with the current policy since the last trial, and until the next one
  };
  static constexpr std::size_t kAlternatives = 3;

  Record& at(Alternative alternative) noexcept { return records_[static_cast<std::size_t>(alternative)]; }
  // The cost of the batches of a round.
  struct Cost {
    double latency = 0, requests = 0, worked = 0, items = 0;

    double of(Alternative alternative) const noexcept;
  };
  bool compare(Record& record, double gain) noexcept;
  void adopt(Alternative alternative) noexcept;
  void choose_next() noexcept;

  std::array<Record, kAlternatives> records_;
  std::optional<Alternative> trying_;      // runs for this round
  Alternative last_ = Alternative::kHold;  // that was tried
  std::size_t batches_ = 0;                // of this round
  Cost cost_;                              // of this round
  std::optional<Cost> tried_;              // of the round that tried `last_`
  Cost kept_;                              // of the last round with the current policy
};

}  // namespace hami
