// Fixed strategies to compare with. They know everything that the product has to learn: the line of the batch time, the
// number of callers, and when each caller returns on average.
#pragma once

#include <algorithm>
#include <deque>

#include "simulation.hpp"

namespace hami::testing::policy {

enum class Strategy {
  kGreedy,    // starts with all that is queued
  kHoldAll,   // waits for every caller
  kHoldHalf,  // waits for the callers of the last batch, at most beta / 2
  kGap,       // waits for the next return while its gap g has n * g < beta; beta in all
  kRound,     // waits for every caller if the pause is shorter than beta
};
constexpr Strategy kStrategies[] = {Strategy::kGreedy, Strategy::kHoldAll, Strategy::kHoldHalf, Strategy::kGap,
                                    Strategy::kRound};
inline const char* name_of(Strategy strategy) {
  constexpr const char* kNames[] = {"greedy", "hold all", "hold beta/2", "gap rule", "round rule"};
  return kNames[static_cast<std::size_t>(strategy)];
}

class Fixed : public Decider {
 public:
  struct Knows {
    double beta = 0, pause = 0;
    std::size_t callers = 0;
    bool exponential = false;
    std::size_t cap = 64;
  };
  Fixed(Strategy strategy, Knows knows) : strategy_(strategy), knows_(knows) {}

  void arrive(double, std::size_t items) override {
    queue_.push_back(items);
    items_ += items;
    if (!away_.empty()) away_.pop_front();
  }
  bool wakes() override { return true; }
  Step next(double now, std::size_t completed, double) override {
    if (completed > 0) {
      free_since_ = now;
      last_ = running_;
      at_end_ = queue_.size();
      away_.insert(away_.end(), running_, now);
      running_ = 0;
    }
    const double until = queue_.empty() ? kNever : hold(now);
    if (queue_.empty() || until > now) return {0, until};
    std::size_t together = 0;
    while (!queue_.empty() && (running_ == 0 || together + queue_.front() <= knows_.cap)) {
      together += queue_.front();
      ++running_;
      queue_.pop_front();
    }
    items_ -= together;
    return {running_, kNever};
  }

 private:
  double hold(double now) const {
    const std::size_t n = queue_.size();
    if (n >= knows_.callers || items_ >= knows_.cap) return now;
    switch (strategy_) {
      case Strategy::kGreedy: return now;
      case Strategy::kHoldAll: return kNever;
      case Strategy::kHoldHalf: return n >= at_end_ + last_ ? now : free_since_ + knows_.beta / 2;
      case Strategy::kRound: return knows_.pause < knows_.beta ? kNever : now;
      case Strategy::kGap: break;
    }
    if (away_.empty() || now >= free_since_ + knows_.beta) return now;
    const double all = static_cast<double>(away_.size());
    const double gap =
        knows_.exponential ? knows_.pause / all : std::max(knows_.pause / all, away_.front() + knows_.pause - now);
    if (static_cast<double>(n) * gap >= knows_.beta) return now;
    return std::min(now + 2 * gap, free_since_ + knows_.beta);
  }

  const Strategy strategy_;
  const Knows knows_;
  std::deque<std::size_t> queue_;
  std::deque<double> away_;  // when each caller that is away was answered
  std::size_t items_ = 0, running_ = 0, last_ = 0, at_end_ = 0;
  double free_since_ = 0;
};

}  // namespace hami::testing::policy
