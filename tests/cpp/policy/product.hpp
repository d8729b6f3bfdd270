// The decisions of the product: NodeScheduler, as its dispatcher asks it.
#pragma once

#include "../scheduled.hpp"
#include "simulation.hpp"

namespace hami::testing::policy {

inline Nanoseconds nanoseconds(double milliseconds) { return static_cast<Nanoseconds>(milliseconds * 1e6 + 0.5); }

class Product : public Decider {
 public:
  explicit Product(std::size_t cap, BatchingMode mode = BatchingMode::kAdaptive) {
    scheduler_.add_instance({1, cap}, false);
    scheduler_.config().batching = {mode, cap, 1, 0};
  }
  // A node whose maximum is "auto".
  static Product with_auto_max() {
    Product product(hami::policy::kAutoMax);
    product.scheduler_.config().batching = {BatchingMode::kAdaptive, hami::policy::kAutoMax, 1, 0, true};
    return product;
  }
  void arrive(double now, std::size_t items) override {
    scheduler_.push(request_of(items), nanoseconds(now), ++calls_);
  }
  bool wakes() override { return scheduler_.batch_ready() || scheduler_.dispatch_idle(); }
  Step next(double now, std::size_t completed, double took) override {
    if (completed > 0) scheduler_.record_batch(0, completed, nanoseconds(took), nanoseconds(now));
    for (;;) {
      RequestChain taken, removed;
      const NodeScheduler::Action action = scheduler_.next_action(0, nanoseconds(now), taken, removed);
      switch (action.what) {
        case NodeScheduler::Action::kRun: return {taken.size(), kNever};
        case NodeScheduler::Action::kWait: return {0, static_cast<double>(action.until) / 1e6};
        case NodeScheduler::Action::kIdle: return {};
        case NodeScheduler::Action::kAgain: break;
      }
    }
  }
  const NodeScheduler& scheduler() const { return scheduler_; }

 private:
  NodeScheduler scheduler_{"n"};
  std::uint64_t calls_ = 0;
};

}  // namespace hami::testing::policy
