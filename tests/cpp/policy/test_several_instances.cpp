// Instances with a core each, and requests of known cost: an instance takes its share of those that wait, under a virtual clock.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "report.hpp"
#include "text_instances.hpp"

using namespace hami;
using namespace hami::testing;
using namespace hami::testing::policy;

namespace {

double ten(Random&) { return 10; }

struct Texts {
  const char* name;
  double fixed, each;  // milliseconds of a batch and of a token
  std::function<double(Random&)> cost;
  struct Before {
    std::size_t callers, instances;
    double rate;  // texts per ms, when the first free instance took all that waits
  };
  std::vector<Before> before;
};

// A node that has learned that a batch takes 2 ms, and each item 1 ms for each 10 of its cost.
class Node {
 public:
  explicit Node(std::size_t instances = 2, std::size_t min = 1) {
    for (std::size_t i = 0; i < instances; ++i) scheduler.add_instance({min, 64}, false);
    scheduler.set_batching({BatchingMode::kGreedy, 64, min, 0});
    scheduler.learn_costs();
    for (std::size_t i = 1; i <= 10 * hami::policy::kCostBatches; ++i) {
      const double cost = 10 * static_cast<double>(1 + i % 4);
      push(min, cost);
      run(*scheduler.dispatch_idle());
      end();
    }
  }
  void push(std::size_t requests, double cost = 10, std::uint8_t priority = 0) {
    for (std::size_t i = 0; i < requests; ++i) {
      Ref<Request> request = request_of(1);
      request->cost = cost;
      request->priority = priority;
      scheduler.push(std::move(request), nanoseconds(now), ++calls_);
    }
  }
  // How many requests the instance takes; 0: none.
  std::size_t run(NodeScheduler::Index instance) {
    RequestChain taken, removed;
    const NodeScheduler::Action step = scheduler.next_action(instance, nanoseconds(now), taken, removed);
    if (step.what != NodeScheduler::Action::kRun) return 0;
    const std::vector<Ref<Request>> batch = all_of(taken);
    double largest = 0;
    for (const Ref<Request>& request : batch) largest = std::max(largest, request->cost);
    last_ = {instance, batch.size(), 2 + 0.1 * static_cast<double>(batch.size()) * largest};
    return batch.size();
  }
  // The last batch ends.
  void end() {
    now += last_.took;
    scheduler.record_batch(last_.instance, last_.items, nanoseconds(last_.took), nanoseconds(now));
    CHECK_EQ(run(last_.instance), 0U);
  }

  NodeScheduler scheduler{"n"};
  double now = 1;

 private:
  struct Batch {
    NodeScheduler::Index instance = 0;
    std::size_t items = 0;
    double took = 0;
  };
  Batch last_;
  std::uint64_t calls_ = 0;
};

}  // namespace

TEST_CASE("policy: an instance takes its share of the texts that wait, where that ends sooner") {
  Table table("several", {"texts", "callers", "instances", "before, texts/ms", "HAMi, texts/ms", "ratio"});
  const Texts loads[] = {
      {"equal, 2 ms of overhead",
       2,
       0.18,
       ten,
       {{8, 2, 0.742},
        {8, 4, 1.243},
        {64, 1, 0.546},
        {64, 2, 0.808},
        {64, 4, 1.335},
        {64, 8, 2.386},
        {200, 1, 0.488},
        {200, 2, 1.034},
        {200, 8, 3.089}}},
      {"equal, 20 ms of overhead",
       20,
       0.18,
       ten,
       {{8, 2, 0.260},
        {8, 4, 0.310},
        {64, 1, 0.473},
        {64, 2, 0.518},
        {64, 4, 0.607},
        {64, 8, 0.785},
        {200, 1, 0.233},
        {200, 2, 0.871},
        {200, 8, 1.723}}},
      {"mixed, 2 ms of overhead",
       2,
       0.18,
       tokens,
       {{8, 2, 0.286},
        {8, 4, 0.547},
        {64, 1, 0.168},
        {64, 2, 0.334},
        {64, 4, 0.663},
        {64, 8, 1.290},
        {200, 1, 0.175},
        {200, 2, 0.349},
        {200, 8, 1.378}}},
      {"mixed, 20 ms of overhead",
       20,
       0.18,
       tokens,
       {{8, 2, 0.135},
        {8, 4, 0.207},
        {64, 1, 0.127},
        {64, 2, 0.247},
        {64, 4, 0.457},
        {64, 8, 0.735},
        {200, 1, 0.148},
        {200, 2, 0.290},
        {200, 8, 1.067}}},
      {"equal, 20 ms for any batch",
       20,
       0,
       ten,
       {{8, 2, 0.400},
        {8, 4, 0.400},
        {64, 1, 3.180},
        {64, 2, 3.180},
        {64, 4, 3.180},
        {64, 8, 3.180},
        {200, 1, 3.163},
        {200, 2, 6.281},
        {200, 8, 9.804}}},
  };
  for (const Texts& load : loads)
    for (const Texts::Before& before : load.before) {
      TextInstances::Setup setup;
      setup.callers = before.callers;
      setup.instances = before.instances;
      setup.cores = static_cast<double>(before.instances);
      setup.fixed = load.fixed;
      setup.each = load.each;
      setup.cost = load.cost;
      const double rate = TextInstances(setup).run(10'000).rate;
      table.row({load.name, std::to_string(before.callers), std::to_string(before.instances), text(before.rate, 3),
                 text(rate, 3), text(rate / before.rate)});
      CAPTURE(load.name);
      CAPTURE(before.callers);
      CAPTURE(before.instances);
      CHECK_GE(rate, 0.97 * before.rate);
      const bool is_shared = load.each > 0 && before.callers == 64 && before.instances > 1;
      if (is_shared && load.name[0] == 'e') CHECK_GE(rate, 1.3 * before.rate);
    }
  table.write();
}

TEST_CASE("an instance leaves equal shares to those that are free, or woken already") {
  for (const bool woken : {false, true}) {
    Node node(3);
    node.push(12);
    const NodeScheduler::Index first = *node.scheduler.dispatch_idle();
    const auto second = woken ? node.scheduler.dispatch_idle() : std::nullopt;
    CHECK_EQ(node.run(first), 4U);
    CHECK_EQ(node.run(second ? *second : *node.scheduler.dispatch_idle()), 4U);
    CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 4U);
  }
}

TEST_CASE("an instance leaves less to one that still runs, and nothing to one that takes far longer than usual") {
  struct Case {
    double runs;  // milliseconds of a batch that usually takes 3
    std::size_t share;
  };
  for (const Case& each : {Case{0, 6}, {2, 5}, {3, 4}, {5.9, 4}, {6.1, 9}}) {
    Node node;
    node.push(1);
    CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 1U);
    node.now += each.runs;
    node.push(9);
    CAPTURE(each.runs);
    CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), each.share);
  }
}

TEST_CASE("an instance takes all where others must not run the rest, or would not be sooner") {
  Node node;
  SUBCASE("reserve") { node.scheduler.config().reserve = 1; }
  SUBCASE("a learned number of instances") { node.scheduler.config().auto_instances = true; }
  SUBCASE("a shared device") { node.scheduler.config().shared_device = true; }
  node.push(10);
  CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 10U);
}

TEST_CASE("an instance leaves no rest below the minimum size of a batch") {
  Node node(2, 2);
  node.push(3);
  CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 3U);
}

TEST_CASE("with reserve, an instance leaves nothing to those that are free, or woken, but must not run it") {
  struct Case {
    std::size_t instances, reserve;
    std::vector<std::size_t> shares;  // of those that start, one after the other, while one instance runs long
  };
  for (const Case& each : {Case{3, 1, {10}}, {4, 1, {5, 5}}, {4, 2, {10}}, {3, 0, {5, 5}}})
    for (const bool woken : {false, true}) {
      CAPTURE(each.instances);
      CAPTURE(each.reserve);
      CAPTURE(woken);
      Node node(each.instances);
      node.scheduler.config().reserve = each.reserve;
      node.push(1, 1000);
      CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 1U);
      node.push(10);
      std::vector<NodeScheduler::Index> start;
      while (start.size() < (woken ? each.instances - 1 : 1)) start.push_back(*node.scheduler.dispatch_idle());
      for (std::size_t i = 0; i < each.shares.size(); ++i) {
        if (i == start.size()) start.push_back(*node.scheduler.dispatch_idle());
        CHECK_EQ(node.run(start[i]), each.shares[i]);
      }
      CHECK(node.scheduler.queue().empty());
    }
}

TEST_CASE("with reserve, urgent requests are shared by all instances") {
  Node node;
  node.scheduler.config().reserve = 1;
  node.scheduler.config().max_wait = nanoseconds(1000);
  node.push(10, 10, kUrgentPriority);
  CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 5U);
}

TEST_CASE("texts of different lengths that run in two batches anyway are not divided further") {
  Node node;
  node.push(8, 10);
  node.push(1, 100);  // as long as the others together
  CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 8U);
  CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 1U);
}

TEST_CASE("requests of equal cost fill a batch, also those that are due") {
  Node node(1);
  node.push(200);
  node.now += 1000;
  CHECK_EQ(node.run(*node.scheduler.dispatch_idle()), 64U);
}
