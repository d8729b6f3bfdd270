// admission = "deadline": which requests a node rejects at once. And the statistics of each class of service.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "pipes.hpp"
#include "scheduled.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Index = NodeScheduler::Index;
using Action = NodeScheduler::Action;

constexpr Nanoseconds kItemCost = 100, kBatchCost = 900;  // of a batch

Ref<Request> made(Nanoseconds deadline, std::uint8_t priority = 0, std::size_t items = 1) {
  Ref<Request> request = request_of(items);
  request->deadline = deadline;
  request->priority = priority;
  return request;
}

// A node whose batches of n items take 900 + 100 * n, and which knows it.
struct Node {
  NodeScheduler scheduler{"n"};
  RequestChain taken, removed;

  Node(std::size_t instances, std::size_t max, bool by_deadline = true) {
    for (std::size_t i = 0; i < instances; ++i) scheduler.add_instance({1, max}, false);
    scheduler.config().batching = {BatchingMode::kGreedy, max, 1, 0};
    scheduler.config().by_deadline = by_deadline;
    for (std::size_t items = 1; items <= max; items *= 2)
      for (std::size_t run = 0; run < policy::kKnown; ++run)
        scheduler.record_batch(0, items, kBatchCost + kItemCost * static_cast<Nanoseconds>(items), 0);
  }
  void push(std::size_t count, Nanoseconds moment, std::uint8_t priority = 0, Nanoseconds deadline = kNever) {
    for (std::size_t i = 0; i < count; ++i) scheduler.push(made(deadline, priority), moment, i);
  }
  Nanoseconds end(Nanoseconds moment, std::uint8_t priority = 0, Nanoseconds deadline = kNever) const {
    return scheduler.earliest_end(*made(deadline, priority), moment);
  }
  void start(Nanoseconds moment) {
    const std::optional<Index> instance = scheduler.dispatch_idle();
    REQUIRE(instance.has_value());
    taken.clear();
    REQUIRE(scheduler.next_action(*instance, moment, taken, removed).what == Action::kRun);
  }
};

Dict with(std::int64_t priority, std::int64_t data = 1) {
  Dict dict = request_of(Value(data));
  dict.enter("priority", Value(priority));
  return dict;
}

// completed, failed, rejected, expired, cancelled
std::array<std::uint64_t, 5> outcomes(const RequestStats& stats) {
  return {stats.completed, stats.failed, stats.rejected, stats.expired, stats.cancelled};
}

}  // namespace

TEST_CASE("the earliest end adds the batch that runs, the full batches ahead and the request's own") {
  Node node(1, 4);
  CHECK_EQ(node.end(50), 50 + 1000);
  node.push(4, 100);
  node.start(100);  // until 1400
  CHECK_EQ(node.end(100), 1400 + 1000);
  CHECK_EQ(node.end(1300), 1400 + 1000);
  CHECK_EQ(node.end(2000), 2000 + 1000);  // it takes longer than it should
  node.push(3, 100);
  CHECK_EQ(node.end(100), 1400 + 1000);  // it may join these
  node.push(1, 100);
  CHECK_EQ(node.end(100), 1400 + 1300 + 1000);
  CHECK_EQ(node.end(100, kUrgentPriority), 1400 + 1000);
  CHECK_EQ(node.end(100, 1), 1400 + 1000);
  CHECK_EQ(node.end(100, 0, 9000), 1400 + 1000);  // the others have no deadline
  node.push(4, 100, kHighPriority);
  CHECK_EQ(node.end(100), 1400 + 2 * 1300 + 1000);
  CHECK_EQ(node.end(100, kHighPriority), 1400 + 1300 + 1000);
}

TEST_CASE("the earliest end counts the batches ahead on all instances, without those that are reserved") {
  for (const std::size_t reserve : {0, 1}) {
    Node node(2, 1);
    node.scheduler.config().reserve = reserve;
    node.push(1, 0);
    node.start(0);  // until 1000
    CHECK_EQ(node.end(10), (reserve ? 1000 : 10) + 1000);
    CHECK_EQ(node.end(10, kHighPriority), 10 + 1000);
    node.push(4, 10);
    CHECK_EQ(node.end(10), reserve ? 1000 + 4 * 1000 + 1000 : 10 + 2 * 1000 + 1000);
  }
}

TEST_CASE("without a deadline, a learned time or admission, every request is admitted") {
  Node off(1, 1, false), on(1, 1);
  NodeScheduler fresh("n");
  fresh.add_instance({1, 1}, false);
  fresh.config().by_deadline = true;
  CHECK(off.scheduler.admits(*made(1), 0));
  CHECK(fresh.admits(*made(1), 0));
  CHECK(on.scheduler.admits(*made(kNever), 0));
  CHECK(on.scheduler.admits(*made(1000), 0));
  CHECK_FALSE(on.scheduler.admits(*made(999), 0));
  std::size_t admitted = 0;
  for (std::size_t i = 0; i < 10 * policy::kAdmitsOneIn; ++i) admitted += on.scheduler.admits(*made(999), 0);
  CHECK_EQ(admitted, 10u);  // so that the learned time stays current
}

TEST_CASE(
    "at twice the load it can take, a node completes requests in time without a pause, and with admission all it admits") {
  for (const bool by_deadline : {false, true}) {
    Node node(1, 1, by_deadline);
    std::size_t in_time = 0, late = 0, expired = 0, rejected = 0;
    Nanoseconds free_at = 0;
    for (Nanoseconds moment = 0; moment < 2'000'000; moment += 10) {
      if (moment % 500 == 0) {  // a batch of one takes 1000
        const Ref<Request> request = made(moment + 3500);
        if (node.scheduler.admits(*request, moment))
          node.scheduler.push(request, moment, 0);
        else
          ++rejected;
      }
      if (moment < free_at) continue;
      if (free_at > 0) node.scheduler.record_batch(0, 1, 1000, moment);
      node.taken.clear();
      Action::What what = Action::kAgain;
      if (free_at > 0 || node.scheduler.dispatch_idle())
        while (what == Action::kAgain) {
          what = node.scheduler.next_action(0, moment, node.taken, node.removed).what;
          expired += all_of(node.removed).size();
        }
      free_at = what == Action::kRun ? moment + 1000 : 0;
      if (what == Action::kRun) ++(node.taken.first()->deadline < free_at ? late : in_time);
    }
    CAPTURE(by_deadline);
    CHECK_GE(in_time, 1900u);
    if (by_deadline)
      CHECK_LE(late + expired, (rejected + 63) / 64 + 40);  // those that are admitted now and then, and whom they delay
    else
      CHECK_EQ(rejected, 0u);
  }
}

TEST_CASE("a request that cannot end in time fails at once, never runs, and counts as rejected") {
  Seen seen;
  define("TestTakes40ms", [&](Batch batch, const Params&) {
    seen.add(batch);
    for (const Nanoseconds end = now() + 40'000'000; now() < end;) {
    }
    add(batch, 0);
  }, {own_thread(), {1, 1}, ""});
  TestPipe pipe({{"backend", "TestTakes40ms"}, {"admission", "deadline"}});
  // One more than needed: the time of a batch is recorded before the next one starts, but after its callers continue.
  for (std::size_t run = 0; run <= policy::kKnown; ++run) CHECK(pipe.call(Value(0)).good);
  Dict late = request_of(Value(1));
  late.enter("timeout", text("25ms"));
  const CallResult refused = pipe.call(std::move(late));
  CHECK(refused.code == ErrorCode::kDeadlineExceeded);
  CHECK_NE(refused.message.find("node \"n\" cannot end this request in time: it takes at least "), std::string::npos);
  const double least =
      std::stod(refused.message.substr(refused.message.find("at least ") + 9));  // ms, or a larger unit
  CHECK_GT(least, 0);
  CHECK_LT(least, 60'000);
  CHECK_NE(refused.message.find(" are left (admission = \"deadline\")"), std::string::npos);
  Dict early = request_of(Value(2));
  early.enter("timeout", text("1h"));
  CHECK(pipe.call(std::move(early)).good);
  CHECK_EQ(seen.batches(), (Rows{{0}, {0}, {0}, {0}, {2}}));
  const NodeStats& stats = pipe->stats().at("n");
  CHECK_EQ(outcomes(stats), (std::array<std::uint64_t, 5>{5, 0, 1, 0, 0}));
  CHECK_EQ(stats.submitted.load(), 6u);
}

TEST_CASE("each class counts every request once as submitted and once by its outcome, in all paths") {
  for (const std::int64_t priority : {0, 254, 255}) {
    Gate gate;
    define("TestGatedCounts", [&](Batch batch, const Params&) {
      gate.pass();
      for (Request* request : batch) {
        if (number(*request) == 7) throw Error(ErrorCode::kRequest, "seven");
        answer(*request, Value(1));
      }
    }, {own_thread(), {1, 1}, ""});
    TestPipe pipe({{"backend", "TestGatedCounts"}, {"max_queue_size", 3}, {"on_full", "reject"}});
    const NodeStats& stats = pipe->stats().at("n");
    std::vector<TestPipe::Pending> calls;
    calls.push_back(pipe.submit(with(priority)));  // completes
    gate.arrived.wait_for(1);
    calls.push_back(pipe.submit(with(priority, 7)));  // fails
    calls.push_back(pipe.submit(with(priority)));     // is cancelled
    Dict expires = with(priority);
    expires.enter("deadline", Value(0.0));
    CHECK(pipe.call(std::move(expires)).code == ErrorCode::kDeadlineExceeded);
    calls.push_back(pipe.submit(with(priority)));  // completes
    CHECK(pipe.call(with(priority)).code == ErrorCode::kQueueFull);
    CHECK(calls[2].call->give_up(Error::cancelled()));
    const LaneName lane = lane_of(static_cast<std::uint8_t>(priority));
    if (lane != kNormalLane) CHECK_EQ(stats.lanes[lane].running.load(), 1u);
    gate.open();
    for (TestPipe::Pending& call : calls) call.wait();
    CHECK(pipe.close().empty());
    const std::array<std::uint64_t, 5> expected{2, 1, 1, stats.expired, 1};
    CHECK_EQ(outcomes(stats), expected);
    CHECK_EQ(stats.submitted.load(), 5u + stats.expired);
    for (const LaneName other : {kUrgentLane, kHighLane}) {
      const RequestStats& counts = stats.lanes[other];
      CHECK_EQ(counts.submitted.load(), other == lane ? stats.submitted.load() : 0);
      CHECK_EQ(counts.running.load(), 0u);
      if (other == lane) CHECK_EQ(outcomes(counts), expected);
    }
  }
}
