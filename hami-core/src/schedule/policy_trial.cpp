// PolicyTrial: rounds of batches, and the recent mean gain of each alternative.
#include "schedule/policy_trial.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/policy_constants.hpp"

namespace hami {

using namespace policy;

double PolicyTrial::Cost::of(Alternative alternative) const noexcept {
  return std::max(1.0, alternative == Alternative::kHold ? latency / requests : worked / items);
}

std::optional<Alternative> PolicyTrial::record_batch(const Batch& batch, std::size_t instances) noexcept {
  const std::size_t round = kRound * instances;
  if (++batches_ <= round / 3) return std::nullopt;
  const double requests = static_cast<double>(batch.requests);
  cost_.latency += static_cast<double>(batch.latency) * requests;
  cost_.requests += requests;
  cost_.worked += static_cast<double>(batch.worked);
  cost_.items += static_cast<double>(batch.items);
  if (batches_ < round) return std::nullopt;
  batches_ = 0;
  const Cost cost = std::exchange(cost_, Cost());
  if (std::exchange(trying_, std::nullopt)) {
    tried_ = cost;
    return std::nullopt;
  }
  const Cost before = std::exchange(kept_, cost);
  if (const std::optional<Cost> tried = std::exchange(tried_, std::nullopt)) {
    at(last_).rounds = 0;
    if (compare(at(last_), std::log(std::sqrt(before.of(last_) * cost.of(last_)) / tried->of(last_)))) {
      adopt(last_);
      return last_;
    }
  }
  choose_next();
  return std::nullopt;
}

// The way back is known too; what lies beyond is not.
void PolicyTrial::adopt(Alternative alternative) noexcept {
  Record back = std::exchange(at(alternative), Record());
  back.gain = -back.gain;
  back.differed = false;
  at(alternative == Alternative::kMoreInstances    ? Alternative::kFewerInstances
     : alternative == Alternative::kFewerInstances ? Alternative::kMoreInstances
                                                   : alternative) = back;
}

// The next alternative after the last one that differs and whose pause is over.
void PolicyTrial::choose_next() noexcept {
  const std::size_t last = static_cast<std::size_t>(last_);
  for (std::size_t i = 1; i <= kAlternatives; ++i) {
    const std::size_t next = (last + i) % kAlternatives;
    Record& record = records_[next];
    const bool due = ++record.rounds >= record.pause && record.differed && !trying_;
    if (due)
      last_ = *(trying_ = static_cast<Alternative>(next));
    else
      record.differed = false;
  }
}

// Whether the alternative is better. 2 + 4 / (n - 1)^2 approximates the 97 % quantile of Student's t distribution for n
// comparisons (6.3, 2.9, 2.4, … 1.9).
bool PolicyTrial::compare(Record& record, double gain) noexcept {
  const double off = gain - record.gain, weight = 1 / static_cast<double>(std::min(++record.comparisons, kSmooths));
  record.gain += weight * off;
  record.spread += weight * ((1 - weight) * off * off - record.spread);
  if (record.comparisons < 2) return false;
  const double freedom = 1 / weight - 1, error = std::sqrt(record.spread / freedom);
  const bool sure = std::abs(record.gain) > std::max(kNegligible, (2 + 4 / (freedom * freedom)) * error);
  if (sure || record.comparisons >= kSmooths) record.pause = std::clamp(2 * record.pause, kMemory / 2, kMemory);
  return sure && record.gain > 0;
}

}  // namespace hami
