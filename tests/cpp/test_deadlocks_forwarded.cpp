// Requests that a graph, a container or a plugin forwards: they fail too if they complete a deadlock cycle.
#include <atomic>
#include <optional>
#include <thread>

#include "deadlocks.hpp"

using namespace hami;
using namespace hami::testing;

TEST_CASE("a request that goes to the next node of the graph fails there if it completes a deadlock cycle") {
  Nodes nodes;
  PipeConfig config;
  config.nodes = {{"before", {{"backend", "TestActs"}, {"next", "a"}}}, {"a", {{"backend", "TestActs"}}}};
  nodes.acts["a"] = [&](std::int64_t) { return nodes.call("before", 2); };
  nodes.acts["before"] = [&](std::int64_t) { return 3; };
  nodes.build(config);
  check_deadlock(nodes.submit("a", 1).wait(), "a -> a");
}

TEST_CASE("a deadlock cycle of backends that forward requests to each other's nodes is detected on any thread") {
  std::optional<Latch> started;
  define("TestAddTen", [](Batch batch, const Params&) { add(batch, 10); });
  define("TestIsFirstNode", [&](Batch batch, const Params&) {
    for (Request* request : batch) {
      const bool first = number(*request) < 20;
      if (first) started->add();
      if (first) started->wait_for(2);
      answer(*request, Value(first));
    }
  });
  load_built("surroundings.so");
  for (const std::string forwarder :
       {"Forward[node.*]", "BackgroundThread[Forward[node.*]]", "BuiltFind(name=node.*)"}) {
    CAPTURE(forwarder);
    const auto forwards_to = [&](const char* node) {
      std::string expression = forwarder;
      return "S[TestAddTen,Filter[TestIsFirstNode," + expression.replace(expression.find('*'), 1, node) + "]]";
    };
    PipeConfig config;
    config.nodes = {{"a", {{"backend", Value(forwards_to("b"))}}}, {"b", {{"backend", Value(forwards_to("a"))}}}};
    TestPipe pipe(config);
    started.emplace();
    std::vector<TestPipe::Pending> submitted{pipe.submit(Nodes::to("a", 1)), pipe.submit(Nodes::to("b", 2))};
    check_one_refused(submitted);
    // The same on the threads of callers.
    started.emplace();
    std::atomic<int> refused{0};
    Latch ended;
    std::vector<std::thread> callers;
    for (const char* node : {"a", "b"})
      callers.emplace_back([&, node] {
        const CallResult ended_call = pipe.call(Nodes::to(node, 1));
        if (ended_call.good)
          CHECK_EQ(ended_call.number(), 21);
        else
          CHECK(ended_call.code == ErrorCode::kReentrantCall);
        refused += !ended_call.good;
        ended.add();
      });
    ended.wait_for(2);
    for (std::thread& caller : callers) caller.join();
    CHECK_EQ(refused, 1);
  }
}

TEST_CASE("a deadlock cycle through the forwarded elements of a list is detected") {
  std::optional<Latch> started;
  define("TestWaitsForOther", [&](Batch batch, const Params&) {
    for (Request* request : batch) {
      started->add();
      started->wait_for(2);
      request->dict.set(kResult, *request->dict.find(kData));
    }
  });
  define("TestIsList", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(request->dict.find(kData)->kind() == Kind::kList));
  });
  load_built("golden.so");
  for (const std::string forwarder : {"FanOut", "BuiltEach"}) {
    CAPTURE(forwarder);
    const auto forwards_to = [&](const std::string& node) {
      return Value("Filter[TestIsList,S[TestWaitsForOther," + forwarder + "[Forward[node." + node + "]]]]");
    };
    PipeConfig config;
    config.nodes = {{"a", {{"backend", forwards_to("b")}}}, {"b", {{"backend", forwards_to("a")}}}};
    TestPipe pipe(config);
    started.emplace();
    std::vector<TestPipe::Pending> submitted;
    for (const char* node : {"a", "b"}) {
      Dict dict = request_of(make_list({1, 2, 3}));
      dict.enter("node_name", Value(node));
      submitted.push_back(pipe.submit(std::move(dict)));
    }
    check_one_refused(submitted);
  }
}
