// Requests of unequal cost, such as texts, under a virtual clock: an engine pads the items of a batch to its largest.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "product.hpp"
#include "report.hpp"
#include "text_instances.hpp"

using namespace hami;
using namespace hami::testing;
using namespace hami::testing::policy;

namespace {

struct Texts {
  std::size_t callers = 64;  // each asks again as soon as it is answered
  double fixed = 1;          // milliseconds of a batch
  double each = 0.09;        // of an item, for each cost ^ power
  double power = 1;
  bool by_cost = true;
  std::function<double(Random&)> cost = tokens;
  std::size_t batches = 3000;
  unsigned seed = 1;
};

struct Run {
  double useful = 0;   // cost per ms, without padding
  double longest = 0;  // wait in ms
  double p99 = 0;      // time from arrival to answer, in ms
  double padding = 0;
};

// One instance of at most 64 items. Checks what must hold at every batch.
class TextNode {
 public:
  explicit TextNode(const Texts& load) : load_(load), random_(load.seed) {
    scheduler_.add_instance({1, 64}, false);
    scheduler_.set_batching({BatchingMode::kGreedy, 64, 1, 0});
    if (load.by_cost) scheduler_.learn_costs();
  }

  Ref<Request> text(double cost) {
    Ref<Request> request = request_of(1);
    request->cost = cost;
    request->index = next_++;
    return request;
  }
  void push(double cost) { push(text(cost), ++calls_, 0); }
  void push(Ref<Request> request, std::uint64_t call, std::size_t before) {
    waiting_[request->index] = {request->cost, now_, scheduler_.queue().size(), 0};
    scheduler_.push(std::move(request), now_, call, before);
    scheduler_.dispatch_idle();
  }

  // Runs one batch; returns its requests.
  std::vector<std::size_t> run() {
    RequestChain taken, removed;
    const NodeScheduler::Action step = scheduler_.next_action(0, now_, taken, removed);
    REQUIRE_EQ(step.what, NodeScheduler::Action::kRun);
    std::vector<std::size_t> batch;
    double largest = 0, cost = 0;
    for (const Ref<Request>& request : all_of(taken)) {
      REQUIRE_EQ(waiting_.count(request->index), 1u);  // not taken before
      batch.push_back(request->index);
      largest = std::max(largest, request->cost);
      cost += request->cost;
    }
    check_order(batch);
    check_waits(batch);
    const double items = static_cast<double>(batch.size());
    const double took = load_.fixed + load_.each * items * std::pow(largest, load_.power);
    now_ += nanoseconds(took);
    for (const std::size_t one : batch) {
      const Waiting& request = waiting_.at(one);
      answered_.push_back(static_cast<double>(now_ - request.since) / 1e6);
      waiting_.erase(one);
    }
    useful_ += cost;
    padded_ += items * largest;
    scheduler_.record_batch(0, batch.size(), nanoseconds(took), now_);
    return batch;
  }

  Run closed_loop() {
    for (std::size_t i = 0; i < load_.callers; ++i) push(load_.cost(random_));
    double began = 0;
    for (std::size_t i = 0; i < load_.batches; ++i) {
      if (i == load_.batches / 10) {
        began = static_cast<double>(now_) / 1e6;
        useful_ = padded_ = 0;
        answered_.clear();
      }
      for (std::size_t again = run().size(); again > 0; --again) push(load_.cost(random_));
      CHECK_EQ(waiting_.size(), load_.callers);  // none is lost
      CHECK_EQ(scheduler_.queue().size(), load_.callers);
    }
    std::sort(answered_.begin(), answered_.end());
    return {useful_ / (static_cast<double>(now_) / 1e6 - began), answered_.back(),
            answered_[answered_.size() * 99 / 100], 1 - useful_ / padded_};
  }
  NodeScheduler& scheduler() { return scheduler_; }
  double ms() const { return static_cast<double>(now_) / 1e6; }
  double last() const { return answered_.back(); }
  double cost_of(std::size_t index) const { return waiting_.at(index).cost; }
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    double cost;
    Nanoseconds since;
    std::size_t ahead;   // requests that were in the queue before it
    std::size_t passed;  // batches without it since it is due
  };

  // Requests of equal cost are taken in their order.
  void check_order(const std::vector<std::size_t>& batch) {
    std::map<double, std::size_t> newest;
    for (const std::size_t one : batch) newest[waiting_.at(one).cost] = std::max(newest[waiting_.at(one).cost], one);
    for (const auto& [index, request] : waiting_)
      if (const auto found = newest.find(request.cost); found != newest.end() && index < found->second)
        REQUIRE(std::find(batch.begin(), batch.end(), index) != batch.end());
  }
  // A request that is due waits for no more batches than there were requests ahead of it.
  void check_waits(const std::vector<std::size_t>& batch) {
    const CostModel* const costs = scheduler_.costs();
    if (!costs || !costs->known()) return;
    for (auto& [index, request] : waiting_) {
      const bool is_due =
          static_cast<double>(now_ - request.since) >= hami::policy::kPatience * costs->time(1, request.cost);
      if (!is_due || std::find(batch.begin(), batch.end(), index) != batch.end()) continue;
      REQUIRE_LE(++request.passed, request.ahead);
    }
  }

  const Texts load_;
  Random random_;
  NodeScheduler scheduler_{"n"};
  Nanoseconds now_ = 1;
  std::uint64_t calls_ = 0;
  std::size_t next_ = 0;
  std::map<std::size_t, Waiting> waiting_;
  std::vector<double> answered_;
  double useful_ = 0, padded_ = 0;
};

}  // namespace

TEST_CASE("policy: requests of unequal cost: more of it per time than in order of arrival, and none starves") {
  Table table("unequal", {"callers", "fixed, ms", "power", "in order, tokens/ms", "by cost, tokens/ms", "ratio",
                          "padding, in order", "padding, by cost", "p99, in order, ms", "p99, by cost, ms"});
  double worst = 100, worst_p99 = 0;
  for (const double power : {1.0, 1.5})
    for (const double fixed : {0.5, 2.0, 8.0})
      for (const std::size_t callers : {8, 64, 256}) {
        Texts load;
        load.callers = callers;
        load.fixed = fixed;
        load.power = power;
        load.each = 0.09 / std::pow(16.0, power - 1);
        load.batches = 600;
        const Run by_cost = TextNode(load).closed_loop();
        load.by_cost = false;
        const Run in_order = TextNode(load).closed_loop();
        worst = std::min(worst, by_cost.useful / in_order.useful);
        worst_p99 = std::max(worst_p99, by_cost.p99 / in_order.p99);
        table.row({std::to_string(callers), hami::testing::policy::text(fixed, 1),
                   hami::testing::policy::text(power, 1), hami::testing::policy::text(in_order.useful),
                   hami::testing::policy::text(by_cost.useful),
                   hami::testing::policy::text(by_cost.useful / in_order.useful),
                   hami::testing::policy::text(in_order.padding), hami::testing::policy::text(by_cost.padding),
                   hami::testing::policy::text(in_order.p99, 0), hami::testing::policy::text(by_cost.p99, 0)});
      }
  table.row({"worst", "", "", "", "", hami::testing::policy::text(worst), "", "", "", ""});
  table.write();
  CHECK_GE(worst, 1.8);
  CHECK_LE(worst_p99, 1);
}

TEST_CASE("policy: the learned times of batches of unequal cost") {
  for (const double power : {1.0, 1.5, 2.0}) {
    Texts load;
    load.power = power;
    load.each = 0.09 / std::pow(16.0, power - 1);
    load.batches = 200;
    TextNode node(load);
    node.closed_loop();
    const CostModel& costs = *node.scheduler().costs();
    for (const double cost : {3.0, 16.0, 70.0, 256.0}) {
      const double expected = 1 + load.each * 4 * std::pow(cost, power);
      CHECK_LT(std::abs(costs.time(4, cost) / 1e6 - expected), 0.02 * expected);
    }
  }
}

TEST_CASE("policy: an absurd cost does not change the learned times of others") {
  CostModel costs;
  for (int i = 1; i <= 20; ++i) costs.learn(1, 10.0 * i, 1000 + 100 * i);
  const double before = costs.time(1, 100);
  CHECK_LT(std::abs(before - 2000), 1);
  for (const double cost : {1e200, 1e12, 1e7, 1e-6}) {
    costs.learn(1, cost, 5000);
    CHECK_EQ(costs.time(1, 100), before);
  }
}

TEST_CASE("policy: the times are learned again where all costs have changed") {
  CostModel costs;
  costs.learn(1, 1e12, 1000);  // the first one may be absurd
  for (int i = 1; i <= 40; ++i) costs.learn(1, 10.0 * i, 1000 + 100 * i);
  CHECK_LT(std::abs(costs.time(1, 100) - 2000), 1);
  for (int i = 1; i <= 40; ++i) costs.learn(1, 1e7 * i, 1000 + 100 * i);
  CHECK_LT(std::abs(costs.time(1, 1e8) - 2000), 1);
}

TEST_CASE("policy: requests of equal cost run in order, in full batches") {
  Texts load;
  load.cost = [](Random&) { return 7.0; };
  TextNode node(load);
  for (std::size_t i = 0; i < 200; ++i) node.push(7);
  for (std::size_t first = 0; first < 200; first += 64) {
    const std::vector<std::size_t> batch = node.run();
    CHECK_EQ(batch.size(), std::min<std::size_t>(64, 200 - first));
    for (std::size_t i = 0; i < batch.size(); ++i) CHECK_EQ(batch[i], first + i);
  }
}

TEST_CASE("policy: a call of a thousand texts is divided, and holds up another caller by no more than a round") {
  Texts load;
  load.batches = 100;
  TextNode node(load);
  node.closed_loop();
  while (!node.empty()) node.run();
  Random random(3);
  for (std::size_t i = 0; i < 1000; ++i) node.push(node.text(tokens(random)), 1'000'000, i);
  for (int i = 0; i < 10; ++i) node.run();
  const double round = 64 * (load.fixed + load.each * 256), began = node.ms();
  Ref<Request> other = node.text(16);
  const std::size_t index = other->index;
  node.push(std::move(other), 1'000'001, 0);
  for (bool found = false; !found;) {
    const std::vector<std::size_t> batch = node.run();
    found = std::find(batch.begin(), batch.end(), index) != batch.end();
  }
  CHECK_LE(node.ms() - began, round / 4);
  while (!node.empty()) node.run();
}

TEST_CASE("policy: a long text among many short ones waits, and then runs") {
  Texts load;
  load.batches = 100;
  TextNode node(load);
  node.closed_loop();
  while (!node.empty()) node.run();
  Ref<Request> other = node.text(512);
  const std::size_t index = other->index;
  node.push(std::move(other), 1, 0);
  const double began = node.ms();
  for (std::size_t i = 0; i < 64; ++i) node.push(10);
  double shorts = 0;
  for (bool found = false; !found;) {
    const std::vector<std::size_t> batch = node.run();
    found = std::find(batch.begin(), batch.end(), index) != batch.end();
    if (found) CHECK_EQ(batch.size(), 1u);
    if (!found) shorts = node.ms() - began;
    for (std::size_t i = found ? 0 : batch.size(); i > 0; --i) node.push(10);
  }
  const double alone = load.fixed + load.each * 512;
  CHECK_GE(shorts, 0.8 * hami::policy::kPatience * alone);
  CHECK_LE(shorts, 1.2 * hami::policy::kPatience * alone + 64 * (load.fixed + load.each * 640) / 8);
}

TEST_CASE("policy: requests of a call that batches leave behind do not come before a later call in large numbers") {
  RequestQueue queue;
  queue.set_share(64);
  queue.set_unordered();
  const auto push = [&](double cost, std::uint64_t call, std::size_t before) {
    Ref<Request> request = request_of(1);
    request->cost = cost;
    queue.push(std::move(request), 0, call, before);
  };
  for (std::size_t i = 0; i < 256; ++i) push(i % 2 == 0 ? 1 : 9, 1, i);
  RequestChain taken;
  queue.take(queue.cut(256, false, RequestQueue::Takes::kAll, {nullptr, -hami::kNever, 1, 1}), taken);
  REQUIRE_EQ(taken.size(), 128u);
  push(9, 2, 0);
  std::size_t ahead = 0, place = 0;
  queue.for_each([&](const Request& request) {
    if (request.call == 2) place = ahead;
    ++ahead;
  });
  CHECK_EQ(place, 32u);  // those of the first round, and not of the two rounds that 128 items are
}

TEST_CASE("policy: a node with a cost of requests ends a round when the last of its requests is taken") {
  TextNode node({});
  RequestQueue& queue = node.scheduler().queue();
  const std::size_t share = std::max<std::size_t>(64, hami::policy::kAutoMax);
  for (std::size_t i = 0; i < 4 * share; ++i) node.push(node.text(i % 2 == 0 ? 1 : 9), 1'000'000, i);
  RequestChain taken;
  queue.take(queue.cut(4 * share, false, RequestQueue::Takes::kAll, {nullptr, -hami::kNever, 1, 1}), taken);
  REQUIRE_EQ(taken.size(), 2 * share);
  node.push(node.text(9), 1'000'001, 0);
  std::size_t ahead = 0, place = 0;
  queue.for_each([&](const Request& request) {
    if (request.call == 1'000'001) place = ahead;
    ++ahead;
  });
  CHECK_EQ(place, share / 2);
}

TEST_CASE(
    "policy: a long text among short ones: with many callers, its time is in their p99, with an instance or two") {
  Table table("long", {"callers", "instances, threads of each", "weight of the long text", "p99 without it, ms",
                       "p99 with it, ms", "to one instance without it"});
  for (const std::size_t callers : {16, 64}) {
    TextInstances::Setup setup;
    setup.callers = callers;
    setup.fixed = 2;
    setup.each = 0.18;
    const auto p99 = [&](std::size_t instances, double threads, double weight, bool has_long) {
      setup.instances = instances;
      setup.threads = threads;
      setup.weight = weight;
      setup.has_long = has_long;
      return TextInstances(setup).run(1000).p99;
    };
    const double goal = 1.1, reference = p99(1, 2, 1, false);
    for (const auto& [instances, threads, weight] : {std::tuple(std::size_t{1}, 2.0, 1.0),
                                                     {std::size_t{2}, 1.0, 1.0},
                                                     {std::size_t{2}, 2.0, 1.0},
                                                     {std::size_t{2}, 2.0, 0.05}}) {
      const double without = p99(instances, threads, weight, false), with = p99(instances, threads, weight, true);
      table.row({std::to_string(callers), std::to_string(instances) + ", " + hami::testing::policy::text(threads, 0),
                 hami::testing::policy::text(weight, 2), hami::testing::policy::text(without, 1),
                 hami::testing::policy::text(with, 1), hami::testing::policy::text(with / reference)});
      const double growth = with / reference;
      if (callers == 64) CHECK_GT(growth, goal);
    }
  }
  table.write();
}
