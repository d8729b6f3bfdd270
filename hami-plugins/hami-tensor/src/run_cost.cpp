// RunCost: a regression over the runs so far, and a division of sorted items by dynamic programming.
#include "run_cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hami_tensor {
namespace {

constexpr double kNoSlope = 1e15;  // positions that take as long as a run: as if they were free
constexpr double kEqual = 1e-9;    // what rounding may change

double work(std::int64_t rows, std::int64_t length, double power) noexcept {
  return static_cast<double>(rows) * std::pow(static_cast<double>(length), power);
}

}  // namespace

void RunCost::learn(std::int64_t rows, std::int64_t length, double seconds) noexcept {
  if (fixed_lengths_ >= 0 || rows < 1 || length < 1 || !(seconds > 0)) return;
  ++runs_;
  for (std::size_t i = 0; i < kPowers.size(); ++i) {
    Regression& sums = regressions_[i];
    for (double* sum :
         {&sums.weight, &sums.work, &sums.seconds, &sums.work_work, &sums.work_seconds, &sums.seconds_seconds})
      *sum *= kFading;
    const double x = work(rows, length, kPowers[i]);
    const double weight = 1 / (seconds * seconds);
    sums.weight += weight;
    sums.work += weight * x;
    sums.seconds += weight * seconds;
    sums.work_work += weight * x * x;
    sums.work_seconds += weight * x * seconds;
    sums.seconds_seconds += weight * seconds * seconds;
  }
}

RunCost::Line RunCost::line() const noexcept {
  if (fixed_lengths_ >= 0) return {fixed_lengths_, 1, true};
  Line best;
  if (static_cast<double>(runs_) < kMinRuns) return best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kPowers.size(); ++i) {
    const Regression& sums = regressions_[i];
    const double mean_work = sums.work / sums.weight;
    const double mean_seconds = sums.seconds / sums.weight;
    const double variance = sums.work_work / sums.weight - mean_work * mean_work;
    if (variance < kMinVariation * mean_work * mean_work) continue;
    const double covariance = sums.work_seconds / sums.weight - mean_work * mean_seconds;
    const double slope = std::max(covariance / variance, 0.0);
    const double fixed = std::max(mean_seconds - slope * mean_work, 0.0);
    const double residual = sums.seconds_seconds - 2 * (fixed * sums.seconds + slope * sums.work_seconds) +
                            fixed * fixed * sums.weight + 2 * fixed * slope * sums.work +
                            slope * slope * sums.work_work;
    if (residual >= least) continue;
    least = residual;
    // Without a slope, any number of positions is cheaper than one more run.
    best = {slope > 0 ? fixed / slope : kNoSlope, kPowers[i], true};
  }
  return best;
}

std::vector<std::size_t> RunCost::divide(const std::vector<Sized>& items, std::size_t max_items,
                                         std::int64_t max_positions) const {
  const Line cost = line();
  const std::size_t n = items.size();
  // least[i]: the cost of the first i items; start[i]: where their last run begins.
  std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> start(n + 1, 0);
  least[0] = 0;
  for (std::size_t end = 1; end <= n; ++end) {
    const std::int64_t length = items[end - 1].length;
    const double unit = std::pow(static_cast<double>(length), cost.power);
    std::int64_t rows = 0;
    for (std::size_t first = end; first-- > 0 && end - first <= max_items;) {
      rows += items[first].rows;
      const bool alone = first + 1 == end;
      const bool fits = length == 0 || rows <= max_positions / length;
      if (!alone && (!fits || (!cost.known && items[first].length != length))) break;
      const double total = least[first] + (cost.known ? cost.fixed : 1) + static_cast<double>(rows) * unit;
      if (total > least[end] * (1 + kEqual)) continue;  // of equal ones, the larger run
      least[end] = total;
      start[end] = first;
    }
  }
  std::vector<std::size_t> ends;
  for (std::size_t end = n; end > 0; end = start[end]) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  return ends;
}

}  // namespace hami_tensor
