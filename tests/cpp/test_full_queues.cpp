// Threads of a pipe that wait for capacity in its queues: a wait that would complete a deadlock cycle is refused.
#include <atomic>
#include <thread>

#include "deadlocks.hpp"
#include "sync/waiting.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

void check_refused(const CallResult& refused, const std::string& node, const std::string& path) {
  CHECK(refused.code == ErrorCode::kReentrantCall);
  CHECK_EQ(refused.message,
           "waiting for capacity in the queue of node \"" + node + "\" would deadlock: " + path +
               "; every instance of these nodes waits for the next one; give a node a larger queue "
               "(max_queue_size) or more instances (instance_num), or submit from a thread of your own");
}

Keys small(const char* backend, Keys more = {}) {
  more.emplace_back("backend", backend);
  more.emplace_back("max_queue_size", 1);
  return more;
}

// Submits a request whose callback runs `then` on the thread that completes it.
TestPipe::Pending submit_then(PipeState& pipe, Dict dict, std::function<void()> then, Nanoseconds timeout = kNever) {
  TestPipe::Pending pending;
  pending.call = pipe.start(Nodes::one(std::move(dict)), timeout, InlinePolicy::kNonBlocking,
                            [done = pending.done, then = std::move(then)](Call&) {
    then();
    done->add();
  });
  return pending;
}

}  // namespace

TEST_CASE("a callback that submits to the full queue of its own node is refused at once, and the node goes on") {
  const Gated gated("TestGated");
  TestPipe pipe(small("TestGated"));
  TestPipe::Pending nested;
  TestPipe::Pending first = submit_then(*pipe, request_of(Value(1)), [&] { nested = pipe.submit(Value(3)); });
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending second = pipe.submit(Value(2));
  gated.gate->open();
  CHECK(first.wait().good);
  check_refused(nested.wait(), "n", "n -> n");
  CHECK_EQ(second.wait().number(), 102);
  CHECK_EQ(pipe.call(Value(4)).number(), 104);
}

TEST_CASE("a callback that calls its own node while its queue is full is refused at once, and the node goes on") {
  const Gated gated("TestGated");
  TestPipe pipe(small("TestGated"));
  CallResult nested;
  TestPipe::Pending first = submit_then(*pipe, request_of(Value(1)), [&] { nested = pipe.call(Value(3)); });
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending second = pipe.submit(Value(2));
  gated.gate->open();
  CHECK(first.wait().good);
  check_deadlock(nested, "n -> n");
  CHECK_EQ(second.wait().number(), 102);
}

TEST_CASE("a backend that submits more to its own node than its queue holds is refused at once") {
  Nodes nodes;
  std::vector<TestPipe::Pending> nested;
  nodes.acts["a"] = [&](std::int64_t data) {
    for (int i = 0; i < 3; ++i) nested.push_back(nodes.submit("a", 100 + i));
    return data;
  };
  PipeConfig config;
  config.nodes.push_back({"a", small("TestActs")});
  nodes.build(config);
  CHECK_EQ(nodes.submit("a", 1).wait().number(), 1);
  CHECK_EQ(nested[0].wait().number(), 101);
  for (std::size_t i : {1, 2}) check_refused(nested[i].wait(), "a", "a -> a");
}

TEST_CASE("a callback may wait for capacity that another instance makes; the last instance is refused") {
  const Gated gated("TestGated");
  TestPipe pipe(small("TestGated", {{"instance_num", 2}}));
  Latch both;
  std::vector<TestPipe::Pending> nested(2);
  std::vector<TestPipe::Pending> pending;
  for (std::size_t i : {0, 1}) {
    pending.push_back(submit_then(*pipe, request_of(Value(static_cast<int>(i))), [&, i] {
      both.add();
      both.wait_for(2);
      nested[i] = pipe.submit(Value(10));
    }));
    gated.gate->arrived.wait_for(i + 1);
  }
  pending.push_back(pipe.submit(Value(2)));
  gated.gate->open();
  for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
  check_one_refused(nested);
}

TEST_CASE("a request on its way through a graph outlasts the callback with which it would deadlock") {
  define("TestFirst", [](Batch batch, const Params&) { add(batch, 10); }, {own_thread(), {}, ""});
  const Gated last("TestLast");
  PipeConfig config;
  config.nodes.push_back({"a", small("TestFirst", {{"next", "b"}})});
  config.nodes.push_back({"b", small("TestLast")});
  TestPipe pipe(config);
  TestPipe::Pending nested;
  TestPipe::Pending first = submit_then(*pipe, request_of(Value(1)), [&] { nested = pipe.submit(Value(9)); });
  last.gate->arrived.wait_for(1);
  std::vector<TestPipe::Pending> others;
  for (int number : {2, 3, 4}) others.push_back(pipe.submit(Value(number)));  // in b's queue, leaving a, in a's queue
  last.gate->open();
  CHECK(first.wait().good);
  check_refused(nested.wait(), "a", "a -> b -> a");
  for (std::size_t i : {0, 1, 2}) CHECK_EQ(others[i].wait().number(), 112 + static_cast<int>(i));
}

TEST_CASE("two nodes that wait for capacity in each other's queues go on without one of the requests") {
  Nodes nodes;
  Latch started;
  std::vector<TestPipe::Pending> nested(4);
  const auto fill = [&](const char* other, std::size_t first) {
    return [&nodes, &started, &nested, other, first](std::int64_t data) {
      started.add();
      started.wait_for(2);
      for (std::size_t i = 0; i < 2; ++i) nested[first + i] = nodes.submit(other, 100);
      return data;
    };
  };
  nodes.acts["a"] = fill("b", 0);
  nodes.acts["b"] = fill("a", 2);
  PipeConfig config;
  for (const char* name : {"a", "b"}) config.nodes.push_back({name, small("TestActs")});
  nodes.build(config);
  TestPipe::Pending a = nodes.submit("a", 1), b = nodes.submit("b", 2);
  CHECK(a.wait().good);
  CHECK(b.wait().good);
  check_one_refused(nested);
}

TEST_CASE("a wait for capacity also blocks those whose requests the thread is about to complete") {
  Nodes nodes;
  Latch started, call_waits, go;
  nodes.acts["n"] = [&](std::int64_t data) {
    started.add();
    go.wait_for(1);
    return data;
  };
  nodes.acts["a"] = [&](std::int64_t) { return nodes.call_and_signal("n", 200, "signal"); };
  nodes.acts["signal"] = [&](std::int64_t) {
    call_waits.add();
    return 0;
  };
  PipeConfig config;
  config.nodes.push_back({"n", {{"backend", "TestActs"}, {"max", 2}, {"batching", "greedy"}}});
  config.nodes.push_back({"a", small("TestActs")});
  config.nodes.push_back({"signal", {{"backend", "TestActs"}}});
  nodes.build(config);
  TestPipe::Pending nested;
  TestPipe::Pending running = nodes.submit("n", 1);
  started.wait_for(1);
  TestPipe::Pending first = submit_then(*nodes.state, Nodes::to("n", 150), [&] { nested = nodes.submit("a", 151); });
  TestPipe::Pending calls = nodes.submit("a", 1);  // joins the batch of the first
  call_waits.wait_for(1);
  TestPipe::Pending fills = nodes.submit("a", 300);
  go.add();
  CHECK(first.wait().good);
  check_refused(nested.wait(), "a", "a -> n -> a");
  CHECK_EQ(calls.wait().number(), 201);
  CHECK_EQ(fills.wait().number(), 301);
  CHECK(running.wait().good);
}

TEST_CASE("a callback after a timeout does not wait for capacity, so that other timeouts come in time") {
  const Gated gated("TestGated");
  PipeConfig config;
  for (const char* name : {"n", "m"}) config.nodes.push_back({name, small("TestGated")});
  TestPipe pipe(config);
  TestPipe::Pending nested;
  Latch full;
  bool by_timer = false;
  TestPipe::Pending running = pipe.submit(Nodes::to("n", 4));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending timed = submit_then(*pipe, Nodes::to("n", 1), [&] {
    by_timer = NoWaitScope::active();
    if (!by_timer) return;  // on a busy machine the next submission may be faster: it removes the expired request
    full.wait_for(1);
    nested = pipe.submit(Nodes::to("n", 3));
  }, 200'000'000);  // reaches the queue also on a loaded machine: a callback of this thread would wait for itself
  TestPipe::Pending second = pipe.submit(Nodes::to("n", 2));  // waits until `timed` has expired
  full.add();
  CHECK(timed.wait().code == ErrorCode::kDeadlineExceeded);
  if (by_timer) {
    const CallResult refused = nested.wait();
    CHECK(refused.code == ErrorCode::kReentrantCall);
    CHECK_EQ(
        refused.message,
        "node \"n\" has a full queue, and a callback after a timeout must not wait for capacity: other timeouts would "
        "be late; submit from a thread of your own, or raise max_queue_size");
  }
  CHECK(pipe.submit(Nodes::to("m", 1), 1'000'000).wait().code == ErrorCode::kDeadlineExceeded);
  gated.gate->open();
  CHECK_EQ(running.wait().number(), 104);
  CHECK_EQ(second.wait().number(), 102);
}

TEST_CASE("callbacks and backends that submit to small queues lose nothing") {
  constexpr std::int64_t kCallers = 4, kEach = 150, kGenerations = 4;
  std::shared_ptr<PipeState> state;
  std::atomic<std::size_t> started{0}, good{0}, refused{0}, other{0};
  Latch ended;
  const std::function<void(std::int64_t)> submit = [&](std::int64_t generation) {
    ++started;
    state->start(requests_of({generation}), kNever, InlinePolicy::kNonBlocking,
                 [&submit, &ended, &good, &refused, &other, generation](Call& call) {
      const CallResult made = outcome(call);
      ++(made.good ? good : made.code == ErrorCode::kReentrantCall ? refused : other);
      if (generation > 0) submit(generation - 1);
      ended.add();
    });
  };
  define("TestSubmits", [&](Batch batch, const Params&) {
    for (Request* request : batch)
      if (number(*request) == kGenerations) submit(1);
    add(batch, 0);
  }, {own_thread(), {1, 4}, ""});
  PipeConfig config;
  config.nodes.push_back({"a", small("TestSubmits", {{"instance_num", 2}, {"next", "b"}})});
  config.nodes.push_back({"b", small("TestSubmits", {{"instance_num", 2}})});
  TestPipe pipe(config);
  state = pipe->shared_from_this();
  std::vector<std::thread> callers;
  for (std::int64_t i = 0; i < kCallers; ++i)
    callers.emplace_back([&] {
      for (std::int64_t k = 0; k < kEach; ++k) submit(kGenerations);
    });
  for (std::thread& caller : callers) caller.join();
  for (std::size_t count = 0; count != started; ended.wait_for(count)) count = started;
  CHECK_EQ(good + refused, started.load());
  CHECK_EQ(other.load(), 0u);
  CHECK_GT(good.load(), 0u);
  state = nullptr;
}
