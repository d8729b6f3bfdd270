// Classes of service: the order in which requests leave the queue of a node, and when they leave it.
#include <algorithm>
#include <random>
#include <thread>

#include "pipes.hpp"
#include "schedule/node_scheduler.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Index = NodeScheduler::Index;
using Action = NodeScheduler::Action;

Ref<Request> waiting(std::size_t index, std::uint8_t priority, Nanoseconds deadline = kNever) {
  Ref<Request> request = make_counted<Request>();
  request->index = index;
  request->priority = priority;
  request->deadline = deadline;
  return request;
}

// Takes a batch of at most `count` requests; returns their indices.
std::vector<std::size_t> take(RequestQueue& queue, std::size_t count) {
  RequestChain taken;
  queue.take(queue.cut(count, false), taken);
  std::vector<std::size_t> indices;
  while (const Ref<Request> request = taken.pop()) indices.push_back(request->index);
  return indices;
}

using Indices = std::vector<std::size_t>;

Dict prior(std::int64_t data, std::int64_t priority) {
  Dict dict = request_of(Value(data));
  dict.enter("priority", Value(priority));
  return dict;
}

// A node of one instance with its own thread, whose first batch waits at the gate; then it notes what it runs.
struct GatedNode {
  Gate gate;
  Seen seen;
  explicit GatedNode(std::size_t max) {
    define("TestGatedLanes", [this](Batch batch, const Params&) {
      seen.add(batch);
      gate.pass();
      add(batch, 0);
    }, {own_thread(), {1, max}, ""});
  }
};

}  // namespace

TEST_CASE("a lane orders by number, deadline and arrival, as a stable sort does") {
  std::mt19937 random(3);
  for (int course = 0; course < 300; ++course) {
    Lane lane;
    std::vector<Request*> model;
    const std::size_t numbers = 1 + random() % 4, deadlines = 1 + random() % 4;
    for (std::size_t step = 0; step < 200; ++step) {
      if (random() % 3 || model.empty()) {
        Ref<Request> request = waiting(step, static_cast<std::uint8_t>(random() % numbers),
                                       random() % deadlines ? static_cast<Nanoseconds>(random() % 50) : kNever);
        const auto place =
            std::find_if(model.begin(), model.end(), [&](Request* other) { return Lane::overtakes(*request, *other); });
        model.insert(place, request.get());
        lane.insert(std::move(request));
      } else {
        const std::size_t index = random() % 2 ? 0 : random() % model.size();
        CHECK_EQ(lane.remove(*model[index]).get() == model[index], true);
        model.erase(model.begin() + static_cast<std::ptrdiff_t>(index));
      }
      REQUIRE_EQ(lane.size(), model.size());
      REQUIRE_EQ(lane.items(), model.size());
      std::size_t count = 0;
      for (const Request* request = lane.first(); request; request = Lane::after(*request))
        REQUIRE_EQ(request == model[count++], true);
      REQUIRE_EQ(count, model.size());
      const auto oldest = std::min_element(model.begin(), model.end(),
                                           [](Request* one, Request* other) { return one->index < other->index; });
      REQUIRE_EQ(lane.oldest() == (model.empty() ? nullptr : *oldest), true);
    }
  }
}

TEST_CASE("urgent requests leave the queue first, then high ones, then normal ones by number and deadline") {
  RequestQueue queue;
  queue.push(waiting(0, 0), 0, 0);
  queue.push(waiting(1, 0, 50), 0, 1);
  queue.push(waiting(2, 9), 0, 2);
  queue.push(waiting(3, kHighPriority), 0, 3);
  queue.push(waiting(4, kUrgentPriority), 0, 4);
  queue.push(waiting(5, 0, 40), 0, 5);
  queue.push(waiting(6, kUrgentPriority, 70), 0, 6);
  CHECK(queue.has_high());
  CHECK_EQ(queue.size(kNormalLane), 4u);
  CHECK_EQ(queue.size(kHighLane), 1u);
  CHECK_EQ(queue.size(kUrgentLane), 2u);
  CHECK_EQ(queue.first()->index, 6u);
  CHECK(queue.would_be_first(*waiting(7, kUrgentPriority, 60)));
  CHECK(!queue.would_be_first(*waiting(7, kUrgentPriority)));
  CHECK(!queue.would_be_first(*waiting(7, 9)));
  CHECK_EQ(take(queue, 4), (Indices{6, 4, 3, 2}));
  CHECK(!queue.has_high());
  CHECK_EQ(take(queue, 4), (Indices{5, 1, 0}));
  CHECK(queue.empty());
}

TEST_CASE("a later call waits for one share of a call before it, and that call goes on beside later ones") {
  RequestQueue queue;
  queue.set_share(4);
  for (std::size_t i = 0; i < 12; ++i) queue.push(waiting(i, 0), 0, 1, i);
  CHECK_EQ(take(queue, 2) == Indices({0, 1}), true);
  queue.push(waiting(20, 0), 0, 2);
  CHECK_EQ(take(queue, 4) == Indices({2, 3, 20, 4}), true);
  for (std::size_t i = 30; i < 36; ++i) queue.push(waiting(i, 0), 0, i);
  CHECK_EQ(take(queue, 12) == Indices({5, 6, 7, 30, 31, 32, 33, 34, 35, 8, 9, 10}), true);
  queue.push(waiting(40, 0, 50), 0, 40);  // deadlines count more
  CHECK_EQ(take(queue, 2) == Indices({40, 11}), true);
}

TEST_CASE("an overdue normal request goes before urgent ones, in every second batch") {
  RequestQueue queue;
  queue.set_aging(100);
  for (std::size_t i = 0; i < 4; ++i) queue.push(waiting(i, i == 1 ? 200 : 0), static_cast<Nanoseconds>(i), i);
  for (std::size_t i = 4; i < 7; ++i) queue.push(waiting(i, kUrgentPriority), 90, i);
  queue.age(99);
  CHECK_EQ(queue.first()->index, 4u);
  queue.age(102);  // 0, 1 and 2 are overdue, by arrival
  CHECK_EQ(queue.size(kNormalLane), 4u);
  CHECK_EQ(take(queue, 1), (Indices{0}));
  CHECK_EQ(take(queue, 1), (Indices{4}));
  CHECK_EQ(take(queue, 1), (Indices{1}));
  CHECK_EQ(take(queue, 1), (Indices{5}));
  CHECK_EQ(take(queue, 3), (Indices{2, 6, 3}));
}

TEST_CASE("without aging, normal requests wait as long as urgent ones come") {
  RequestQueue queue;
  queue.push(waiting(0, 0), 0, 0);
  queue.age(kNever);
  for (std::size_t i = 1; i < 100; ++i) {
    queue.push(waiting(i, kUrgentPriority), 0, i);
    CHECK_EQ(take(queue, 1), (Indices{i}));
  }
  CHECK_EQ(take(queue, 1), (Indices{0}));
}

TEST_CASE("with 0.95 load of urgent requests, a normal one waits at most aging and two batches") {
  RequestQueue queue;
  constexpr Nanoseconds kAging = 2000, kBatch = 19;  // an urgent request every 20
  queue.set_aging(kAging);
  Nanoseconds free_at = 0, longest = 0;
  std::size_t normal = 0;
  for (Nanoseconds moment = 0; moment < 100'000; ++moment) {
    if (moment % 20 == 0) queue.push(waiting(0, kUrgentPriority), moment, 0);
    if (moment % 400 == 0) queue.push(waiting(1, 0), moment, 0);
    if (moment < free_at || queue.empty()) continue;
    queue.age(moment);
    RequestChain taken;
    queue.take(queue.cut(1, false), taken);
    const Ref<Request> request = taken.pop();
    free_at = moment + kBatch;
    if (request->priority > 0) continue;
    ++normal;
    longest = std::max(longest, moment - request->queued_at);
  }
  CHECK_GT(normal, 200u);
  CHECK_LE(longest, kAging + 2 * kBatch);
}

TEST_CASE("the earliest deadline first misses no more deadlines than first in, first out") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::size_t missed[2] = {};
    for (const bool by_deadline : {false, true}) {
      std::mt19937 random(seed);
      RequestQueue queue;
      Nanoseconds next = 0, free_at = 0;
      std::size_t sent = 0;
      for (Nanoseconds moment = 0; moment < 20'000 || !queue.empty(); ++moment) {
        for (; next <= moment && sent < 1000; next += static_cast<Nanoseconds>(random() % 20), ++sent) {
          const Nanoseconds deadline = moment + 20 + static_cast<Nanoseconds>(random() % 400);
          Ref<Request> request = waiting(static_cast<std::size_t>(deadline), 0, by_deadline ? deadline : kNever);
          queue.push(std::move(request), moment, sent);
        }
        if (moment < free_at || queue.empty()) continue;
        RequestChain taken;
        queue.take(queue.cut(1, false), taken);
        const Nanoseconds deadline = static_cast<Nanoseconds>(taken.first()->index);
        if (deadline > moment) free_at = moment + 9;  // otherwise it expired, and does not run; the load is 0.95
        if (deadline < moment + 9) ++missed[by_deadline];
      }
    }
    CHECK_LE(missed[1], missed[0]);
  }
}

TEST_CASE("a high request ends the wait of a forming batch, if the batch has its minimum size") {
  for (const std::size_t min : {std::size_t{1}, std::size_t{3}}) {
    for (const BatchingMode mode : {BatchingMode::kGreedy, BatchingMode::kAdaptive}) {
      NodeScheduler scheduler("n");
      scheduler.add_instance({min, 8}, false);
      scheduler.config().batching = {mode, 8, min, 1'000'000};
      scheduler.push(waiting(0, 0), 0, 0);
      scheduler.push(waiting(1, 0), 0, 1);
      const Index instance = *scheduler.dispatch_idle();
      RequestChain taken, removed;
      REQUIRE(scheduler.next_action(instance, 0, taken, removed).what == Action::kWait);
      scheduler.push(waiting(2, 0), 10, 2);
      if (min == 3) {
        scheduler.queue().take_all();
        scheduler.push(waiting(1, 0), 10, 1);
        scheduler.push(waiting(2, kHighPriority), 10, 2);
        CHECK(!scheduler.batch_ready());
        continue;
      }
      CHECK(!scheduler.batch_ready());
      scheduler.push(waiting(3, kHighPriority), 20, 3);
      CHECK(scheduler.batch_ready());
      CHECK(scheduler.next_action(instance, 20, taken, removed).what == Action::kRun);
      CHECK_EQ(taken.first()->index, 3u);
      CHECK_EQ(taken.size(), 4u);
    }
  }
}

TEST_CASE("an urgent request runs before twenty normal ones that wait") {
  GatedNode node(1);
  TestPipe pipe({{"backend", "TestGatedLanes"}});
  std::vector<TestPipe::Pending> calls;
  calls.push_back(pipe.submit(request_of(Value(0))));
  node.gate.arrived.wait_for(1);
  for (std::int64_t i = 1; i <= 20; ++i) calls.push_back(pipe.submit(request_of(Value(i))));
  calls.push_back(pipe.submit(prior(21, 254)));
  calls.push_back(pipe.submit(prior(22, 255)));
  calls.push_back(pipe.submit(prior(23, 9)));
  node.gate.open();
  for (TestPipe::Pending& call : calls) call.wait();
  Rows rows = node.seen.batches();
  rows.resize(5);
  CHECK_EQ(rows, (Rows{{0}, {22}, {21}, {23}, {1}}));
}

TEST_CASE("a request that a backend makes has the priority of its batch, unless it names another") {
  define("TestTellsPriority", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(std::int64_t{request->priority}));
  }, {own_thread(), {1, 8}, ""});
  TestPipe inner({{"backend", "TestTellsPriority"}});
  define("TestAsks", [&](Batch batch, const Params&) {
    for (Request* request : batch) {
      const bool names = number(*request) > 0;
      answer(*request, Value(inner.call(names ? prior(1, number(*request)) : request_of(Value(1))).number()));
    }
  }, {own_thread(), {1, 8}, ""});
  TestPipe outer({{"backend", "TestAsks"}});
  CHECK_EQ(outer.call(prior(0, 255)).number(), 255);
  CHECK_EQ(outer.call(prior(4, 255)).number(), 4);
  CHECK_EQ(outer.call(request_of(Value(0))).number(), 0);
}

TEST_CASE("a lane that is full does not stop the requests of another") {
  GatedNode node(1);
  TestPipe pipe({{"backend", "TestGatedLanes"}, {"max_queue_size", 1}, {"on_full", "reject"}});
  std::vector<TestPipe::Pending> calls;
  calls.push_back(pipe.submit(request_of(Value(0))));
  node.gate.arrived.wait_for(1);
  calls.push_back(pipe.submit(request_of(Value(1))));
  CHECK_EQ(pipe.call(prior(2, 253)).message, "node \"n\" has 1 requests queued (max_queue_size = 1)");
  calls.push_back(pipe.submit(prior(3, 254)));
  calls.push_back(pipe.submit(prior(4, 255)));
  const CallResult refused = pipe.call(prior(5, 255));
  CHECK(refused.code == ErrorCode::kQueueFull);
  CHECK_EQ(refused.message, "node \"n\" has 1 urgent requests queued (max_queue_size = 1)");
  node.gate.open();
  for (TestPipe::Pending& call : calls) call.wait();
  CHECK_EQ(node.seen.batches(), (Rows{{0}, {4}, {3}, {1}}));
}

TEST_CASE("a caller who waits for a place in its lane gets it when a request of that lane leaves") {
  GatedNode node(1);
  TestPipe pipe({{"backend", "TestGatedLanes"}, {"max_queue_size", 1}});
  std::vector<TestPipe::Pending> calls;
  calls.push_back(pipe.submit(request_of(Value(0))));
  node.gate.arrived.wait_for(1);
  for (const std::int64_t priority : {0, 254, 255}) calls.push_back(pipe.submit(prior(priority, priority)));
  std::vector<std::thread> callers;
  for (const std::int64_t priority : {0, 254, 255})
    callers.emplace_back([&pipe, priority] { CHECK(pipe.call(prior(1000 + priority, priority)).good); });
  node.gate.open();
  for (std::thread& caller : callers) caller.join();
  for (TestPipe::Pending& call : calls) call.wait();
  CHECK_EQ(node.seen.batches().size(), 7u);
}

TEST_CASE("an urgent request that waits can be cancelled, and the others run") {
  GatedNode node(1);
  TestPipe pipe({{"backend", "TestGatedLanes"}});
  TestPipe::Pending first = pipe.submit(request_of(Value(0)));
  node.gate.arrived.wait_for(1);
  TestPipe::Pending normal = pipe.submit(request_of(Value(1)));
  TestPipe::Pending urgent = pipe.submit(prior(2, 255));
  CHECK(urgent.call->give_up(Error::cancelled()));
  node.gate.open();
  CHECK(first.wait().good);
  CHECK(normal.wait().good);
  CHECK(urgent.wait().code == ErrorCode::kCancelled);
  CHECK_EQ(node.seen.batches(), (Rows{{0}, {1}}));
}

TEST_CASE("a deadline in the past fails a request of every class, which never runs") {
  GatedNode node(8);
  TestPipe pipe({{"backend", "TestGatedLanes"}});
  node.gate.open();
  for (const std::int64_t priority : {0, 254, 255}) {
    Dict dict = prior(1, priority);
    dict.enter("deadline", Value(0.0));
    CHECK(pipe.call(std::move(dict)).code == ErrorCode::kDeadlineExceeded);
  }
  CHECK(node.seen.batches().empty());
}

TEST_CASE("a pipe whose three lanes are full closes, and each request has one outcome") {
  GatedNode node(1);
  TestPipe pipe({{"backend", "TestGatedLanes"}, {"max_queue_size", 2}});
  std::vector<TestPipe::Pending> calls;
  calls.push_back(pipe.submit(request_of(Value(0))));
  node.gate.arrived.wait_for(1);
  for (const std::int64_t priority : {0, 0, 254, 254, 255, 255})
    calls.push_back(pipe.submit(prior(priority, priority)));
  std::thread opens([&] { node.gate.open(); });
  CHECK(pipe.close().empty());
  opens.join();
  for (TestPipe::Pending& call : calls) CHECK(call.wait().good);
}

TEST_CASE("aging is a duration; 0 turns it off") {
  define("TestQuick", [](Batch batch, const Params&) { add(batch, 1); });
  for (const char* aging : {"0", "0ms", "5ms", "1h"}) {
    TestPipe pipe({{"backend", "TestQuick"}, {"aging", aging}});
    CHECK_EQ(pipe.call(prior(1, 255)).number(), 2);
  }
}
