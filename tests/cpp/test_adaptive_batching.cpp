// What a node learns of its batches: spread, fill, or wait for callers who come back. In virtual time.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "scheduled.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Index = NodeScheduler::Index;
using Action = NodeScheduler::Action;

// A node whose batches cost fixed + item · b milliseconds; callers come back as soon as they have their answer.
struct Closed {
  NodeScheduler scheduler{"n"};
  double fixed, item;
  std::vector<std::size_t> sizes;  // of the batches that were run
  double now = 0;                  // milliseconds

  Closed(double fixed_cost, double item_cost, std::size_t instances, BatchingMode mode = BatchingMode::kAdaptive)
      : fixed(fixed_cost), item(item_cost) {
    for (std::size_t i = 0; i < instances; ++i) scheduler.add_instance({1, 8}, false);
    scheduler.config().batching = {mode, 8, 1, 0};
  }

  // So many callers with `each` items, until so many batches were run; how many items a millisecond were done in the last half.
  double run(std::size_t callers, std::size_t batches, std::size_t each = 1) {
    struct Batch {
      Index instance;
      std::size_t items;
      double ends, took;
    };
    std::vector<Batch> running;
    std::map<Index, double> waiting;  // queue delays
    std::size_t coming = callers, done = 0;
    double half = 0;
    const auto next_action = [&](Index instance) {
      RequestChain taken, removed;
      const Action step = scheduler.next_action(instance, nanoseconds(now), taken, removed);
      waiting.erase(instance);
      if (step.what == Action::kWait) waiting[instance] = static_cast<double>(step.until) / 1e6;
      if (step.what != Action::kRun) return;
      const double took = fixed + item * static_cast<double>(taken.size() * each);
      running.push_back({instance, taken.size(), now + took, took});
      sizes.push_back(taken.size());
      if (sizes.size() * 2 > batches) {
        if (half == 0) half = now;
        done += taken.size();
      }
    };
    const auto dispatch_idle = [&] {
      while (const std::optional<Index> next = scheduler.dispatch_idle()) next_action(*next);
    };
    sizes.clear();
    double rate = 0;
    for (;;) {
      if (rate == 0 && sizes.size() >= batches) rate = static_cast<double>(done) / (now - half);
      if (rate > 0) coming = 0;  // no caller returns; batches that started end
      if (rate > 0 && running.empty() && waiting.empty()) return rate;
      if (coming > 0) {  // one caller after the other, a hundredth of a millisecond apart
        --coming;
        now += 0.01;
        scheduler.push(request_of(each), nanoseconds(now), ++calls_);
        if (scheduler.batch_ready()) next_action(*scheduler.forming());
        for (std::size_t workers = scheduler.instances_for(each); workers > 0; --workers) dispatch_idle();
        continue;
      }
      std::size_t first = 0;
      for (std::size_t i = 1; i < running.size(); ++i)
        if (running[i].ends < running[first].ends) first = i;
      const auto timer = waiting.begin();
      if (timer != waiting.end() && (running.empty() || timer->second < running[first].ends)) {
        now = timer->second;
        next_action(timer->first);
        continue;
      }
      const Batch ended = running[first];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(first));
      now = std::max(now, ended.ends);
      coming += ended.items;
      scheduler.record_batch(ended.instance, ended.items * each, nanoseconds(ended.took), nanoseconds(now));
      next_action(ended.instance);
      dispatch_idle();
    }
  }

  static Nanoseconds nanoseconds(double milliseconds) { return static_cast<Nanoseconds>(milliseconds * 1e6); }
  std::uint64_t calls_ = 0;
};

std::size_t largest_of_last(const std::vector<std::size_t>& sizes, std::size_t count) {
  std::map<std::size_t, std::size_t> times;
  for (std::size_t i = sizes.size() - count; i < sizes.size(); ++i) ++times[sizes[i]];
  std::size_t best = 0;
  for (const auto& [size, seen] : times)
    if (seen > times[best]) best = size;
  return best;
}

}  // namespace

TEST_CASE("where a batch gains nothing, callers are spread over the instances") {
  Closed learned(0.01, 2, 2), greedy(0.01, 2, 2, BatchingMode::kGreedy);
  CHECK_GT(learned.run(4, 400), 0.95);  // of one item a millisecond by two instances
  CHECK_EQ(largest_of_last(learned.sizes, 100), 1u);
  CHECK_LE(learned.scheduler.target_batch_size(), 2u);
  greedy.run(4, 400);
}

TEST_CASE("where a batch is nearly free, it is filled") {
  Closed learned(4, 0.2, 1);
  learned.run(64, 300);
  CHECK_EQ(largest_of_last(learned.sizes, 100), 8u);
  CHECK_EQ(learned.scheduler.target_batch_size(), 8u);
}

TEST_CASE("requests of several items are gathered too, though smaller batches were never seen") {
  Closed learned(4, 0.2, 1);
  learned.run(32, 300, 3);
  CHECK_EQ(largest_of_last(learned.sizes, 100), 2u);  // requests: the two that fit into eight items
  CHECK_EQ(learned.scheduler.target_batch_size(), 8u);
}

TEST_CASE("callers who come back together are served together") {
  // Without waiting for them, eight callers leave in batches of one and of seven, and two callers one by one.
  for (std::size_t callers : {2u, 5u, 8u}) {
    Closed learned(1, 0.001, 1), greedy(1, 0.001, 1, BatchingMode::kGreedy);
    const double all = static_cast<double>(callers);
    CHECK_LT(greedy.run(callers, 300), 0.6 * all);
    CHECK_GT(learned.run(callers, 300), 0.85 * all);
    CHECK_EQ(largest_of_last(learned.sizes, 100), callers);
  }
}

TEST_CASE("many callers of two instances are served together also where a lone caller was there first") {
  Closed learned(1, 0.001, 2);
  learned.run(1, 50);  // one instance at a time has run single requests only
  CHECK_GT(learned.run(16, 400), 0.85 * 16);
  CHECK_EQ(largest_of_last(learned.sizes, 100), 8u);
}

TEST_CASE("while one instance waits for returning callers, another one without requests is idle") {
  NodeScheduler scheduler("n");
  for (int i = 0; i < 2; ++i) scheduler.add_instance({1, 8}, false);
  scheduler.config().batching = {BatchingMode::kGreedy, 8, 1, 1'000'000};
  RequestChain taken, removed;
  const auto run_one = [&](Nanoseconds moment) {
    scheduler.push(request_of(1), moment, 0);
    const Index instance = scheduler.dispatch_idle().value();
    REQUIRE(scheduler.next_action(instance, moment, taken, removed).what == Action::kRun);
    return instance;
  };
  const auto end = [&](Index instance, Nanoseconds moment) { scheduler.record_batch(instance, 1, 1'000'000, moment); };
  const Index first = run_one(0), second = run_one(0);
  end(first, 1'000'000);
  REQUIRE(scheduler.next_action(first, 1'000'000, taken, removed).what == Action::kIdle);
  REQUIRE_EQ(run_one(1'100'000), first);  // the caller returns after a tenth of a millisecond
  for (const Index instance : {first, second}) end(instance, 2'100'000);
  REQUIRE(scheduler.next_action(first, 2'100'000, taken, removed).what == Action::kWait);
  CHECK(scheduler.next_action(second, 2'100'000, taken, removed).what == Action::kIdle);
  CHECK_EQ(scheduler.forming().value(), first);
}

TEST_CASE("a lone caller is never made to wait") {
  Closed learned(1, 0.001, 1);
  learned.run(64, 100);  // it knows what batches cost
  CHECK_GT(learned.run(1, 300), 0.95);
}

TEST_CASE("callers who do not come back are not waited for again and again") {
  Closed learned(1, 0.001, 1);
  learned.run(8, 300);
  NodeScheduler& scheduler = learned.scheduler;
  std::size_t waits = 0;
  Nanoseconds moment = Closed::nanoseconds(learned.now);
  for (int i = 0; i < 200; ++i) {
    moment += 50'000'000;  // other callers, much later
    for (std::uint64_t k = 0; k < 4; ++k) scheduler.push(request_of(1), moment, 1000 + k);
    const std::optional<Index> instance = scheduler.dispatch_idle();
    REQUIRE(instance.has_value());
    RequestChain taken, removed;
    for (;;) {
      const Action step = scheduler.next_action(*instance, moment, taken, removed);
      if (step.what == Action::kIdle) break;
      if (step.what == Action::kWait) {
        ++waits;
        moment = step.until;  // no request arrived
        continue;
      }
      const std::size_t items = taken.size();
      moment += 1'000'000;
      scheduler.record_batch(*instance, items, 1'000'000 + 1000 * static_cast<Nanoseconds>(items), moment);
      taken.clear();
    }
  }
  CHECK_GT(waits, 0u);
  CHECK_LT(waits, 20u);
}

TEST_CASE("a larger size is sampled as soon as enough requests are queued, and counts only when it is run") {
  NodeScheduler scheduler("n");
  scheduler.add_instance({1, 8}, false);
  scheduler.config().batching = {BatchingMode::kAdaptive, 8, 1, 0};
  Nanoseconds moment = 0;
  std::uint64_t calls = 0;
  // So many requests at once; the size of their first batch. Batches of two are as fast as single requests, larger ones cost as
  // much per item.
  const auto run = [&](std::size_t count) {
    moment += 1'000'000'000;
    for (std::size_t i = 0; i < count; ++i) scheduler.push(request_of(1), moment, ++calls);
    std::size_t first = 0;
    REQUIRE_EQ(scheduler.dispatch_idle(), std::optional<Index>(0));
    for (;;) {
      RequestChain taken, removed;
      const Action step = scheduler.next_action(0, moment, taken, removed);
      if (step.what == Action::kIdle) return first;
      if (step.what == Action::kWait) moment = step.until;
      if (step.what != Action::kRun) continue;
      const std::size_t items = taken.size();
      if (first == 0) first = items;
      const Nanoseconds took = static_cast<Nanoseconds>(std::max<std::size_t>(items, 2)) * 1'000'000;
      moment += took;
      scheduler.record_batch(0, items, took, moment);
    }
  };
  for (const std::size_t size : {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}) run(size);
  REQUIRE_EQ(scheduler.target_batch_size(), 2u);
  std::size_t smaller = 0, larger = 0;
  for (int i = 0; i < 200; ++i) smaller += run(2) < 2;
  for (int i = 0; i < 200; ++i) larger += run(4) > 2;
  CHECK_LE(smaller, 1u);  // then it waits for a larger one, which two requests do not allow
  CHECK_GE(larger, 1u);
  CHECK_LE(larger, 8u);
}
