// A node whose maximum is "auto": from batches of one it finds the size from which on more items gain nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "product.hpp"
#include "report.hpp"
#include "strategies.hpp"

using namespace hami::testing::policy;

namespace {

// Notes the requests of each batch.
class Noted : public Decider {
 public:
  explicit Noted(Decider& decider) : decider_(decider) {}
  void arrive(double now, std::size_t items) override { decider_.arrive(now, items); }
  bool wakes() override { return decider_.wakes(); }
  Step next(double now, std::size_t completed, double took) override {
    const Step step = decider_.next(now, completed, took);
    if (step.run > 0) sizes.push_back(step.run);
    return step;
  }
  std::vector<std::size_t> sizes;

 private:
  Decider& decider_;
};

struct Cost {
  const char* name;
  std::function<double(double items, double now)> service;
  std::size_t plateau;  // the smallest size whose time per item is within 2 % of the best up to the cap
};

}  // namespace

TEST_CASE("policy: a node whose max is auto finds the batch size that pays, starting from one") {
  Table table("auto", {"batch time", "callers", "target", "best fixed, items/ms", "HAMi, items/ms", "%"});
  const std::vector<Cost> costs = {
      {"1 ms an item", [](double items, double) { return items; }, 1},
      {"1 ms up to 8 items, then as much each 8", [](double items, double) { return std::ceil(items / 8); }, 8},
      {"4 + 0.01 ms an item", [](double items, double) { return 4 + 0.01 * items; }, hami::policy::kAutoMax}};
  for (const Cost& cost : costs)
    for (const std::size_t callers : {1, 32, 200}) {
      Load load;
      load.callers = callers;
      load.service = cost.service;
      load.pause = [](Random&) { return 0.01; };
      double best = 0;
      for (const std::size_t cap : {std::size_t{1}, std::size_t{8}, hami::policy::kAutoMax}) {
        load.cap = cap;
        Fixed fixed(Strategy::kGreedy, {1, 0.01, std::min(callers, cap), false, cap});
        best = std::max(best, simulate(fixed, load).rate);
      }
      Product product = Product::with_auto_max();
      Noted noted(product);
      const double rate = simulate(noted, load).rate;
      const std::size_t target = product.scheduler().target_batch_size();
      const std::size_t largest = *std::max_element(noted.sizes.begin(), noted.sizes.end());
      table.row({cost.name, std::to_string(callers), std::to_string(target), text(best), text(rate),
                 text(100 * rate / best, 1)});
      CHECK_EQ(noted.sizes.front(), 1u);
      CHECK_LE(largest, hami::policy::kAutoMax);
      for (std::size_t i = 1; i < noted.sizes.size(); ++i)  // no size is skipped on the way up
        CHECK_LE(noted.sizes[i], 2 * *std::max_element(noted.sizes.begin(), noted.sizes.begin() + std::ptrdiff_t(i)));
      if (callers >= 2 * cost.plateau) CHECK_EQ(target, cost.plateau);
      CHECK_GE(rate, 0.95 * best);
    }
  table.write();
}

TEST_CASE("a batching_timeout does not make a node whose max is auto aim at the limit before it knows the cost") {
  hami::NodeScheduler scheduler("n");
  scheduler.add_instance({1, hami::Range::kAuto}, false);
  scheduler.config().batching = {hami::BatchingMode::kAdaptive, hami::policy::kAutoMax, 1, nanoseconds(5), true};
  scheduler.push(hami::testing::request_of(1), 0, 1);
  scheduler.push(hami::testing::request_of(1), 0, 2);
  REQUIRE(scheduler.dispatch_idle().has_value());
  hami::RequestChain taken, removed;
  CHECK(scheduler.next_action(0, 0, taken, removed).what == hami::NodeScheduler::Action::kRun);
  CHECK_EQ(taken.size(), 1u);
}
