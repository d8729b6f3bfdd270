// What keeps normal work from delaying high and urgent requests: reserve, max_wait, on_full = "drop_oldest".
#include <string>
#include <utility>
#include <vector>

#include "lang/units.hpp"
#include "pipes.hpp"
#include "scheduled.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Index = NodeScheduler::Index;
using Action = NodeScheduler::Action;

constexpr Nanoseconds kPerItem = 1'000'000, kPerBatch = 2'000'000;  // of a batch
Nanoseconds batch_time(std::size_t items) { return kPerBatch + kPerItem * static_cast<Nanoseconds>(items); }

Ref<Request> of_class(std::uint8_t priority) {
  Ref<Request> request = make_counted<Request>();
  request->priority = priority;
  return request;
}

// A node under virtual time that has learned how long batches take.
struct ModeNode {
  NodeScheduler scheduler{"n"};
  RequestChain taken, removed;
  Nanoseconds moment = 0;

  explicit ModeNode(BatchingMode mode, std::size_t instances, Nanoseconds max_wait, std::size_t reserve = 0) {
    for (std::size_t i = 0; i < instances; ++i) scheduler.add_instance({1, 64}, false);
    scheduler.config().batching = {mode, 64, 1, 0};
    scheduler.config().reserve = reserve;
    scheduler.config().max_wait = max_wait;
    for (std::size_t items = 1; items <= 64; items *= 2)
      for (std::size_t run = 0; run < policy::kKnown; ++run) scheduler.record_batch(0, items, batch_time(items), 0);
  }
  void push(std::size_t count, std::uint8_t priority) {
    for (std::size_t i = 0; i < count; ++i) scheduler.push(of_class(priority), moment, i);
  }
  // The lanes of what a free instance takes; empty: nothing.
  std::vector<std::size_t> next(Index instance = 0) {
    taken.clear();
    if (scheduler.next_action(instance, moment, taken, removed).what != Action::kRun) return {};
    std::vector<std::size_t> counts(kLanes);
    for (const Ref<Request>& request : all_of(taken)) ++counts[lane_of(request->priority)];
    return counts;
  }
};

using Counts = std::vector<std::size_t>;  // urgent, high, normal

Dict with_priority(std::int64_t data, std::int64_t priority) {
  Dict dict = request_of(Value(data));
  dict.enter("priority", Value(priority));
  return dict;
}

}  // namespace

TEST_CASE("items_within is the largest batch whose predicted time fits, within its bounds") {
  const auto line = [](std::size_t items) { return static_cast<double>(batch_time(items)); };
  CHECK_EQ(items_within(batch_time(8), 1, 64, line), 8u);
  CHECK_EQ(items_within(batch_time(9) - 1, 1, 64, line), 8u);
  CHECK_EQ(items_within(batch_time(64), 1, 64, line), 64u);
  CHECK_EQ(items_within(kNever, 1, 64, line), 64u);
  CHECK_EQ(items_within(1, 1, 64, line), 1u);  // nothing fits
  CHECK_EQ(items_within(1, 4, 64, line), 4u);
  CHECK_EQ(items_within(kNever, 4, 2, line), 2u);
}

TEST_CASE("while high requests come, a normal batch ends within max_wait") {
  for (const BatchingMode mode : {BatchingMode::kGreedy, BatchingMode::kAdaptive}) {
    ModeNode node(mode, 1, batch_time(8));
    node.push(200, 0);
    REQUIRE(node.scheduler.dispatch_idle().has_value());
    CHECK_GE(node.next()[kNormalLane], 32u);  // no high request yet
    node.push(1, kUrgentPriority);
    node.moment += 1000;
    CHECK_EQ(node.next(), (Counts{1, 0, 0}));  // alone: it does not wait for normal ones in its batch either
    CHECK_EQ(node.next(), (Counts{0, 0, 8}));
    node.moment += policy::kHighTraffic - 2000;
    CHECK_EQ(node.next(), (Counts{0, 0, 8}));
    node.moment += 2000;
    CHECK_GE(node.next()[kNormalLane], 32u);  // the high traffic is over
  }
}

TEST_CASE("a node that knows no time yet runs the smallest batches while high requests come") {
  NodeScheduler scheduler("n");
  scheduler.add_instance({2, 64}, false);
  scheduler.config().batching = {BatchingMode::kGreedy, 64, 2, 0};
  scheduler.config().max_wait = batch_time(8);
  for (int i = 0; i < 20; ++i) scheduler.push(of_class(0), 0, 1);
  for (int i = 0; i < 2; ++i) scheduler.push(of_class(kHighPriority), 0, 1);
  RequestChain taken, removed;
  const Index instance = *scheduler.dispatch_idle();
  for (int batch = 0; batch < 3; ++batch) {
    taken.clear();
    REQUIRE(scheduler.next_action(instance, 0, taken, removed).what == Action::kRun);
    CHECK_EQ(taken.size(), 2u);
  }
}

TEST_CASE("a max_wait that is shorter than the smallest batch is known as soon as that is measured") {
  CHECK_EQ(ModeNode(BatchingMode::kGreedy, 1, batch_time(1) - 1).scheduler.exceeds_max_wait(), batch_time(1));
  CHECK_EQ(ModeNode(BatchingMode::kGreedy, 1, batch_time(1)).scheduler.exceeds_max_wait(), 0);
  CHECK_EQ(ModeNode(BatchingMode::kGreedy, 1, 0).scheduler.exceeds_max_wait(), 0);
  NodeScheduler large("n");  // it has run large batches only, whose time says little about a small one
  large.add_instance({1, 64}, false);
  large.config().batching = {BatchingMode::kGreedy, 64, 1, 0};
  large.config().max_wait = 1;
  for (std::size_t run = 0; run < policy::kKnown; ++run) large.record_batch(0, 64, batch_time(64), 0);
  CHECK_EQ(large.exceeds_max_wait(), 0);
  for (std::size_t run = 0; run < policy::kKnown; ++run) large.record_batch(0, 1, batch_time(1), 0);
  CHECK_EQ(large.exceeds_max_wait(), batch_time(1));
}

TEST_CASE("a reserved instance runs only high and urgent requests") {
  ModeNode node(BatchingMode::kGreedy, 2, 0, 1);
  node.push(100, 0);
  REQUIRE(node.scheduler.dispatch_idle() == Index{0});
  CHECK_EQ(node.next(0), (Counts{0, 0, 64}));
  CHECK_FALSE(node.scheduler.dispatch_idle().has_value());  // 36 normal ones wait
  CHECK_EQ(node.scheduler.instances_for(36), 0u);
  node.push(1, kHighPriority);
  REQUIRE(node.scheduler.dispatch_idle() == Index{1});
  CHECK_EQ(node.next(1), (Counts{0, 1, 0}));
  CHECK_EQ(node.next(1), Counts{});
  CHECK_EQ(node.next(0), (Counts{0, 0, 36}));  // the first batch has ended
}

TEST_CASE("an instance shares what waits with instances that are free, not with one that runs high requests") {
  ModeNode node(BatchingMode::kAdaptive, 2, 0);
  node.push(1, kHighPriority);
  REQUIRE(node.scheduler.dispatch_idle() == Index{0});
  CHECK_EQ(node.next(0), (Counts{0, 1, 0}));
  node.push(16, 0);
  REQUIRE(node.scheduler.dispatch_idle() == Index{1});
  CHECK_EQ(node.next(1), (Counts{0, 0, 16}));
  node.push(16, 0);
  node.scheduler.mark_idle(0);
  REQUIRE(node.scheduler.dispatch_idle() == Index{0});
  node.scheduler.mark_idle(1);
  CHECK_EQ(node.next(0), (Counts{0, 0, 8}));
}

TEST_CASE("a normal request runs inline only if an instance is left for it; a high one on any") {
  NodeScheduler scheduler("n");
  for (int i = 0; i < 2; ++i) scheduler.add_instance({1, 4}, true);
  scheduler.config().batching = {BatchingMode::kGreedy, 4, 1, 0};
  scheduler.config().reserve = 1;
  const auto first = scheduler.acquire_inline(1);
  REQUIRE(first.has_value());
  CHECK_FALSE(scheduler.acquire_inline(1).has_value());
  CHECK_FALSE(scheduler.acquire_inline(2, kUrgentLane, kNormalLane).has_value());  // one of two is normal
  const auto second = scheduler.acquire_inline(1, kHighLane, kHighLane);
  REQUIRE(second.has_value());
  scheduler.mark_idle(*first);
  CHECK(scheduler.acquire_inline(1).has_value());
}

TEST_CASE(
    "a normal request that is asked for inside the last normal instance is a deadlock, although another is free") {
  NodeScheduler scheduler("n");
  for (int i = 0; i < 2; ++i) scheduler.add_instance({1, 4}, false);
  scheduler.config().batching = {BatchingMode::kGreedy, 4, 1, 0};
  scheduler.config().reserve = 1;
  scheduler.push(of_class(0), 0, 1);
  const Index instance = *scheduler.dispatch_idle();
  RequestChain taken, removed;
  REQUIRE(scheduler.next_action(instance, 0, taken, removed).what == Action::kRun);
  const auto ask = [&](std::uint8_t priority) {
    const Ref<Request> request = of_class(priority);
    request->wait_token = Ref<Counted>(make_counted<WaitToken>(WaitToken::Release::kEarly).get());
    const bool waits = scheduler.begin_arrival(*request);
    const std::size_t blocked = scheduler.blocked({instance}, kNever).tokens.size();
    scheduler.end_arrival(*request);
    return std::pair(waits, blocked);
  };
  CHECK(ask(0) == std::pair(true, std::size_t{1}));
  CHECK(ask(kHighPriority) == std::pair(false, std::size_t{0}));
  scheduler.push(of_class(0), 0, 2);  // it waits, but a high request does not wait behind it
  CHECK_EQ(ask(kHighPriority).second, 0u);
}

TEST_CASE("a queue full of normal requests makes no capacity while only a reserved instance is free") {
  NodeScheduler scheduler("n");
  for (int i = 0; i < 2; ++i) scheduler.add_instance({1, 4}, false);
  scheduler.config().batching = {BatchingMode::kGreedy, 4, 1, 0};
  scheduler.config().reserve = 1;
  scheduler.config().capacity = 1;
  scheduler.push(of_class(0), 0, 1);
  const Index instance = *scheduler.dispatch_idle();
  RequestChain taken, removed;
  REQUIRE(scheduler.next_action(instance, 0, taken, removed).what == Action::kRun);
  scheduler.push(of_class(0), 0, 2);
  CHECK(scheduler.blocked({instance}, kNever).capacity);
  CHECK_FALSE(scheduler.blocked({}, kNever).capacity);
}

TEST_CASE("the log says once that the smallest batch takes longer than max_wait, and both times") {
  static std::vector<std::string> logged;
  logged.clear();
  set_log_sink([](const std::string&, const std::string& message, int) { logged.push_back(message); });
  define("TestTakes2ms", [](Batch batch, const Params&) {
    for (const Nanoseconds end = now() + 2'000'000; now() < end;) {
    }
    add(batch, 0);
  }, {own_thread(), {1, 4}, ""});
  {
    TestPipe pipe({{"backend", "TestTakes2ms"}, {"max_wait", "1ms"}, {"max", 4}});
    for (std::size_t run = 0; run < 3 * policy::kKnown; ++run) CHECK(pipe.call(with_priority(0, kHighPriority)).good);
  }
  set_log_sink(log_to_standard_error);
  REQUIRE_EQ(logged.size(), 1u);
  const std::string begins = "max_wait is 1ms, and the smallest batch takes ";
  REQUIRE_EQ(logged[0].rfind(begins, 0), 0u);
  const std::string after = logged[0].substr(begins.size());
  CHECK_GE(read_duration(after.substr(0, after.find(':'))).value_or(0), 2);
}

TEST_CASE("reserve must leave an instance for normal requests") {
  define("TestQuickClasses", [](Batch batch, const Params&) { add(batch, 1); });
  for (const std::int64_t reserve : {2, 3}) {
    const auto build = [&] {
      TestPipe pipe({{"backend", "TestQuickClasses"}, {"instance_num", 2}, {"reserve", reserve}});
    };
    CHECK_THROWS_WITH_AS(
        build(),
        doctest::Contains(("reserve is " + std::to_string(reserve) +
                           ", and node \"n\" has 2 instances; at least one must run normal requests: lower "
                           "reserve or raise instance_num")
                              .c_str()),
        Error);
  }
  TestPipe pipe({{"backend", "TestQuickClasses"}, {"instance_num", 2}, {"reserve", 1}, {"max_wait", "5ms"}});
  CHECK_EQ(pipe.call(with_priority(1, 255)).number(), 2);
  CHECK_EQ(pipe.call(with_priority(1, 0)).number(), 2);
}

TEST_CASE("with on_full = drop_oldest, the oldest request of the same class leaves a full queue, and is counted") {
  Gate gate;
  Seen seen;
  define("TestGatedDrops", [&](Batch batch, const Params&) {
    seen.add(batch);
    gate.pass();
    add(batch, 0);
  }, {own_thread(), {1, 1}, ""});
  TestPipe pipe({{"backend", "TestGatedDrops"}, {"max_queue_size", 2}, {"on_full", "drop_oldest"}});
  std::vector<TestPipe::Pending> calls;
  calls.push_back(pipe.submit(with_priority(0, 0)));
  gate.arrived.wait_for(1);
  for (const std::int64_t data : {1, 2, 3}) calls.push_back(pipe.submit(with_priority(data, data == 1 ? 9 : 0)));
  for (const std::int64_t data : {4, 5, 6}) calls.push_back(pipe.submit(with_priority(data, 255)));
  std::vector<CallResult> dropped;
  for (const std::size_t index : {1, 4}) dropped.push_back(calls[index].wait());  // while the others wait
  for (const CallResult& outcome : dropped) {
    CHECK(outcome.code == ErrorCode::kQueueFull);
    CHECK_EQ(outcome.message,
             "node \"n\" dropped this request, the oldest of 2 in its queue, for a newer one (on_full = "
             "\"drop_oldest\", max_queue_size = 2)");
  }
  gate.open();
  for (const std::size_t index : {0, 2, 3, 5, 6}) CHECK(calls[index].wait().good);
  CHECK_EQ(seen.batches(), (Rows{{0}, {5}, {6}, {2}, {3}}));
  const NodeStats& stats = pipe->stats().at("n");
  CHECK_EQ(stats.submitted.load(), 7u);
  CHECK_EQ(stats.completed.load(), 5u);
  CHECK_EQ(stats.rejected.load(), 2u);
  CHECK_EQ(stats.dropped.load(), 2u);
}
