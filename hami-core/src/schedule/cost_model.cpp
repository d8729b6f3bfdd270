// CostModel: a regression over the batches so far, and a division of what waits by dynamic programming.
#include "schedule/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "schedule/batch_policy.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

using namespace policy;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kEqual = 1e-9;  // what rounding may change

}  // namespace

CostModel::CostModel() : least_(kRivals + 1), starts_(kRivals + 1) { waiting_.reserve(kRivals); }

void CostModel::learn(std::size_t items, double cost, Nanoseconds took) noexcept {
  if (items == 0 || took <= 0) return;
  if (batches_ == 0 || (cost <= kFarCost * usual_ && usual_ <= kFarCost * cost)) {
    far_ = 0;
  } else if (++far_ < kCostBatches) {
    return;
  } else {
    regressions_ = {};
    batches_ = far_ = 0;
    known_ = false;
    usual_ = 0;
  }
  const double time = static_cast<double>(took), weight = 1 / (time * time);
  ++batches_;
  for (std::size_t i = 0; i < kPowers.size(); ++i) {
    Regression& sums = regressions_[i];
    for (double* sum : {&sums.weight, &sums.work, &sums.time, &sums.work_work, &sums.work_time, &sums.time_time})
      *sum *= kCostFading;
    const double work = static_cast<double>(items) * std::pow(cost, kPowers[i]);
    sums.weight += weight;
    sums.work += weight * work;
    sums.time += weight * time;
    sums.work_work += weight * work * work;
    sums.work_time += weight * work * time;
    sums.time_time += weight * time * time;
  }
  if (!known_) usual_ += (cost - usual_) / static_cast<double>(batches_);
  fit();
}

// The line with the least squares, of those of all powers.
void CostModel::fit() noexcept {
  if (batches_ < kCostBatches) return;
  double best = kInfinite;
  for (std::size_t i = 0; i < kPowers.size(); ++i) {
    const Regression& sums = regressions_[i];
    const double work = sums.work / sums.weight, time = sums.time / sums.weight;
    const double variance = sums.work_work / sums.weight - work * work;
    if (variance < kCostVariation * kCostVariation * work * work) continue;
    const double covariance = sums.work_time / sums.weight - work * time;
    double each = std::max(covariance / variance, 0.0), fixed = time - each * work;
    if (fixed < 0) {  // the best line through zero
      fixed = 0;
      each = sums.work_time / sums.work_work;
    }
    const double residual = sums.time_time - 2 * (fixed * sums.time + each * sums.work_time) +
                            fixed * fixed * sums.weight + 2 * fixed * each * sums.work + each * each * sums.work_work;
    if (residual >= best) continue;
    best = residual;
    fixed_ = fixed;
    each_ = each;
    power_ = kPowers[i];
    known_ = true;
  }
}

double CostModel::time(double items, double cost) const noexcept {
  return fixed_ + each_ * items * std::pow(cost, power_);
}

double CostModel::to_usual(std::size_t items, double cost) const noexcept {
  const double count = static_cast<double>(items), usual = known_ ? time(count, usual_) : 0;
  return usual > 0 ? time(count, cost) / usual : 1;
}

bool CostModel::add(const Request& request, Nanoseconds moment) noexcept {
  const std::size_t place = waiting_.size();
  if (place == 0) due_ = kRivals;
  const double items = static_cast<double>(request.items), work = known_ ? std::pow(request.cost, power_) : 0;
  const double longest = kPatience * (fixed_ + each_ * items * work);
  const bool is_due = static_cast<double>(moment - request.queued_at) >= longest ||
                      (request.deadline != kNever && static_cast<double>(request.deadline - moment) <= longest);
  if (is_due && due_ == kRivals) due_ = place;
  waiting_.push_back({request.cost, work, request.items, place});
  return place + 1 < kRivals;
}

const CostModel::Choice& CostModel::choose(std::size_t max_items) noexcept {
  if (!known_) return choice_ = {waiting_.front().cost, waiting_.front().cost, max_items};
  const auto less = [](const Waiting& a, const Waiting& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.place < b.place;
  };
  // By a heap: 1 kB of code, of which std::sort has 9.
  std::make_heap(waiting_.begin(), waiting_.end(), less);
  std::sort_heap(waiting_.begin(), waiting_.end(), less);
  divide(max_items);
  std::size_t batches = 0;
  double least = kInfinite;
  bool due_is_chosen = false;
  for (std::size_t end = waiting_.size(); end > 0; end = starts_[end]) {
    const std::size_t start = starts_[end];
    std::size_t items = 0;
    ++batches;
    bool is_due = false;
    for (std::size_t i = start; i < end; ++i) {
      items += waiting_[i].items;
      is_due = is_due || waiting_[i].place == due_;
    }
    const double each = (least_[end] - least_[start]) / static_cast<double>(items);
    if (due_is_chosen || (!is_due && each > least)) continue;
    least = each;
    for (std::size_t i = end;
         i < waiting_.size() && waiting_[i].cost == waiting_[end - 1].cost && items + waiting_[i].items <= max_items;
         ++i)
      items += waiting_[i].items;  // without padding
    choice_ = {waiting_[start].cost, waiting_[end - 1].cost, items};
    due_is_chosen = is_due;
  }
  choice_.all = least_[waiting_.size()];
  choice_.batches = batches;
  return choice_;
}

void CostModel::divide(std::size_t max_items) noexcept {
  least_[0] = 0;
  for (std::size_t end = 1; end <= waiting_.size(); ++end) {
    const double work = each_ * waiting_[end - 1].work;
    std::size_t items = 0;
    least_[end] = kInfinite;
    for (std::size_t start = end; start-- > 0;) {
      items += waiting_[start].items;
      if (items > max_items && start + 1 < end) break;
      const double time = least_[start] + fixed_ + static_cast<double>(items) * work;
      if (time > least_[end] * (1 + kEqual)) continue;  // of equal ones, the larger batch
      least_[end] = time;
      starts_[end] = start;
    }
  }
}

std::size_t CostModel::share(const Choice& choice, std::size_t items,
                             const std::vector<double>& free_in) const noexcept {
  const auto time_of = [&](std::size_t count) { return time(static_cast<double>(count), choice.most); };
  if (choice.batches == 0) return items;
  const double whole = time_of(items);
  double sum = choice.all, least = whole;
  std::size_t instances = 1;
  for (const double free : free_in) {
    if (free >= least) break;
    sum += free + (++instances > choice.batches ? fixed_ : 0);
    least = std::min(least, sum / static_cast<double>(instances));
  }
  if (least * (1 + kNegligible) >= whole) return items;
  return items_within(to_nanoseconds(least) + 1, 1, items, time_of);
}

double CostModel::note_batch(const RequestChain& batch) noexcept {
  double largest = 0, items = 0;
  for (const Request* request = batch.first(); request; request = RequestChain::after(*request)) {
    const double count = static_cast<double>(request->items);
    largest = std::max(largest, request->cost);
    items += count;
    cost_ += count * request->cost;
  }
  padded_ += items * largest;
  return largest;
}

}  // namespace hami
