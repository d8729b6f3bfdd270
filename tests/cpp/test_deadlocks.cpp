// Nested calls of several requests: the call that would complete a deadlock cycle gets an error, all others end normally.
#include "deadlocks.hpp"

using namespace hami;
using namespace hami::testing;

TEST_CASE("when two requests call each other's nodes, only the call that completes the deadlock cycle fails") {
  for (const Traits& traits : {own_thread(), any_thread()}) {
    Nodes nodes(traits);
    Latch started, call_waits;
    nodes.acts["a"] = [&](std::int64_t) {
      started.add();
      started.wait_for(2);
      return nodes.call_and_signal("b", 200, "signal");
    };
    nodes.acts["b"] = [&](std::int64_t) {
      started.add();
      call_waits.wait_for(1);
      return nodes.call("a", 100);
    };
    nodes.acts["signal"] = [&](std::int64_t) {
      call_waits.add();
      return 0;
    };
    nodes.build({{"a", 1}, {"b", 1}, {"signal", 1}});
    TestPipe::Pending first = nodes.submit("a", 1);
    TestPipe::Pending second = nodes.submit("b", 2);
    check_deadlock(second.wait(), "a -> b -> a");
    CHECK_EQ(first.wait().number(), 201);
  }
}

TEST_CASE("a deadlock cycle of three requests over three nodes fails one of them") {
  Nodes nodes;
  Latch started;
  for (const auto& [here, next] : std::map<std::string, std::string>{{"a", "b"}, {"b", "c"}, {"c", "a"}})
    nodes.acts[here] = [&nodes, &started, next = next](std::int64_t) {
      started.add();
      started.wait_for(3);
      return nodes.call(next, 100);
    };
  nodes.build({{"a", 1}, {"b", 1}, {"c", 1}});
  std::vector<TestPipe::Pending> pending{nodes.submit("a", 1), nodes.submit("b", 2), nodes.submit("c", 3)};
  check_one_refused(pending);
}

TEST_CASE("a node with two instances is part of a deadlock cycle only when both instances wait") {
  for (const std::size_t holders : {1, 2}) {
    CAPTURE(holders);
    Nodes nodes;
    Latch started;
    nodes.acts["a"] = [&](std::int64_t) {
      started.add();
      started.wait_for(holders + 1);
      return nodes.call("b", 100);
    };
    nodes.acts["b"] = [&](std::int64_t) {
      started.add();
      started.wait_for(holders + 1);
      return nodes.call("a", 100);
    };
    nodes.build({{"a", 2}, {"b", 1}});
    std::vector<TestPipe::Pending> pending{nodes.submit("b", 0)};
    for (std::size_t i = 0; i < holders; ++i) pending.push_back(nodes.submit("a", 1));
    if (holders == 2) {
      check_one_refused(pending);
    } else {
      for (TestPipe::Pending& one : pending) CHECK_EQ(one.wait().number(), 101);
    }
  }
}

TEST_CASE("a backend that calls its own node waits for another instance of it that is busy") {
  Nodes nodes;
  Latch started, call_waits;
  nodes.acts["a"] = [&](std::int64_t data) {
    started.add();
    started.wait_for(2);
    if (data == 2) return nodes.call_and_signal("a", 100, "signal");
    call_waits.wait_for(1);
    return data;
  };
  nodes.acts["signal"] = [&](std::int64_t) {
    call_waits.add();
    return 0;
  };
  nodes.build({{"a", 2}, {"signal", 1}});
  TestPipe::Pending busy = nodes.submit("a", 1);
  TestPipe::Pending calls = nodes.submit("a", 2);
  CHECK_EQ(calls.wait().number(), 101);
  CHECK_EQ(busy.wait().number(), 1);
}

TEST_CASE("a deadlock cycle is also detected when a queue is full") {
  Nodes nodes;
  Latch started, call_waits;
  nodes.acts["a"] = [&](std::int64_t) {
    started.add();
    started.wait_for(2);
    return nodes.call("b", 200);
  };
  nodes.acts["b"] = [&](std::int64_t) {
    started.add();
    call_waits.wait_for(1);
    return nodes.call("a", 100);
  };
  PipeConfig config;
  for (const char* name : {"a", "b"}) config.nodes.push_back({name, {{"backend", "TestActs"}, {"max_queue_size", 1}}});
  nodes.build(config);
  std::vector<TestPipe::Pending> pending{nodes.submit("a", 1), nodes.submit("b", 2)};
  started.wait_for(2);
  TestPipe::Pending fills_a = nodes.submit("a", 300);
  call_waits.add();
  check_one_refused(pending);
  CHECK_EQ(fills_a.wait().number(), 301);
}

TEST_CASE("a call is not refused if an earlier deadline will end the deadlock cycle") {
  Nodes nodes;
  Latch started;
  nodes.acts["a"] = [&](std::int64_t) {
    started.add();
    started.wait_for(2);
    Dict with_timeout = Nodes::to("b", 200);
    with_timeout.enter("timeout", Value(0.02));
    try {
      return nodes.call(Nodes::one(std::move(with_timeout)));
    } catch (const Error& error) {
      // If this call is the second one, it completes the cycle and is refused at once, because its deadline is the earlier one.
      CHECK((error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kReentrantCall));
      return std::int64_t{-1};
    }
  };
  nodes.acts["b"] = [&](std::int64_t) {
    started.add();
    started.wait_for(2);
    return nodes.call("a", 100);
  };
  nodes.build({{"a", 1}, {"b", 1}});
  TestPipe::Pending first = nodes.submit("a", 1);
  TestPipe::Pending second = nodes.submit("b", 2);
  CHECK_EQ(second.wait().number(), 101);
  CHECK(first.wait().good);
}

TEST_CASE("a call with a deadline is refused at once if no other deadline in the deadlock cycle is earlier") {
  Nodes nodes;
  nodes.acts["a"] = [&](std::int64_t) { return nodes.call("a", 100); };
  nodes.build({{"a", 1}});
  Dict dict = Nodes::to("a", 1);
  dict.enter("timeout", Value("10h"));
  check_deadlock(nodes.pipe->submit(std::move(dict)).wait(), "a -> a");
}

TEST_CASE("a request that a backend submits to its own node without waiting for it runs afterwards") {
  Nodes nodes;
  TestPipe::Pending later;
  nodes.acts["a"] = [&](std::int64_t data) {
    later = nodes.submit("a", 100);
    return data;
  };
  nodes.build({{"a", 1}});
  CHECK_EQ(nodes.submit("a", 1).wait().number(), 1);
  CHECK_EQ(later.wait().number(), 101);
}

TEST_CASE("a backend that waits for a submitted request gets an error if the wait completes a deadlock cycle") {
  Nodes nodes;
  nodes.acts["a"] = [&](std::int64_t) {
    const TestPipe::Pending later = nodes.submit("a", 100);
    later.call->wait_inside();
    check_deadlock(outcome(*later.call), "a -> a");
    const TestPipe::Pending other = nodes.submit("b", 100);
    other.call->wait_inside();
    return outcome(*other.call).number();
  };
  nodes.build({{"a", 1}, {"b", 1}});
  CHECK_EQ(nodes.submit("a", 1).wait().number(), 101);
}

TEST_CASE("a wait for a submitted request completes a deadlock cycle if its backend calls the waiting node") {
  Nodes nodes;
  Latch call_waits;
  nodes.acts["a"] = [&](std::int64_t) {
    const TestPipe::Pending later = nodes.submit("b", 2);
    call_waits.wait_for(1);
    later.call->wait_inside();
    check_deadlock(outcome(*later.call), "b -> a -> b");
    return std::int64_t{1};
  };
  nodes.acts["b"] = [&](std::int64_t) { return nodes.call_and_signal("a", 100, "signal"); };
  nodes.acts["signal"] = [&](std::int64_t) {
    call_waits.add();
    return 0;
  };
  nodes.build({{"a", 1}, {"b", 1}, {"signal", 1}});
  CHECK(nodes.submit("a", 1).wait().good);
}

TEST_CASE("a caller who leaves ends the calls of its backend, so that they complete no deadlock cycle") {
  Nodes nodes;
  Latch started, call_waits, left;
  nodes.acts["a"] = [&](std::int64_t) {
    started.add();
    started.wait_for(2);
    return nodes.call_and_signal("b", 200, "signal");
  };
  nodes.acts["b"] = [&](std::int64_t) {
    started.add();
    left.wait_for(1);
    return nodes.call("a", 100);
  };
  nodes.acts["signal"] = [&](std::int64_t) {
    call_waits.add();
    return 0;
  };
  nodes.build({{"a", 1}, {"b", 1}, {"signal", 1}});
  TestPipe::Pending first = nodes.submit("a", 1);
  TestPipe::Pending second = nodes.submit("b", 2);
  call_waits.wait_for(1);
  CHECK(first.call->give_up(Error(ErrorCode::kCancelled, "cancelled by its caller")));
  left.add();
  CHECK(second.wait().good);
  CHECK(first.wait().code == ErrorCode::kCancelled);
  CHECK_EQ(nodes.submit("a", 300).wait().number(), 301);
}

TEST_CASE("a deadlock cycle can span several pipes") {
  Nodes nodes;
  std::shared_ptr<PipeState> other;
  define("TestAsksBack", [&](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(nodes.call("a", number(*request))));
  }, {own_thread(), {}, ""});
  TestPipe outside({{"backend", "TestAsksBack"}});
  other = outside->shared_from_this();
  nodes.acts["a"] = [&](std::int64_t data) {
    const Ref<Call> call = other->run(requests_of({data}), kNever);
    if (call->error(0)) throw Error(*call->error(0));
    return outcome(*call).number();
  };
  nodes.build({{"a", 1}});
  check_deadlock(nodes.submit("a", 1).wait(),
                 R"(a of pipe "TestActs" -> n of pipe "TestAsksBack" -> a of pipe "TestActs")");
  other = nullptr;
}
