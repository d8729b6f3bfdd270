// Requests that a graph, a container or a plugin forwards: completing a deadlock cycle that way is an error too.
#include <atomic>
#include <optional>
#include <thread>

#include "deadlocks.hpp"
#include "plugin/library.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

void load_plugin(const char* path) {
  register_core();
  for (const ClassPtr& cls : load_library(path, "").classes) Registry::instance().define(cls);
}

}  // namespace

TEST_CASE("a deadlock cycle that the step to the next node completes ends there") {
  Nodes nodes;
  PipeConfig config;
  config.nodes = {{"before", {{"backend", "TestActs"}, {"next", "a"}}}, {"a", {{"backend", "TestActs"}}}};
  nodes.acts["a"] = [&](std::int64_t) { return nodes.ask("before", 2); };
  nodes.acts["before"] = [&](std::int64_t) { return 3; };
  nodes.build(config);
  check_deadlock(nodes.submit("a", 1).wait(), "a -> a");
}

TEST_CASE(
    "backends that forward their requests to each other's nodes are detected as a deadlock cycle, on any thread") {
  std::optional<Latch> held;
  define("TestTurn", [](Batch batch, const Params&) { add(batch, 10); });
  define("TestComesFirst", [&](Batch batch, const Params&) {
    for (Request* request : batch) {
      const bool first = number(*request) < 20;
      if (first) held->add();
      if (first) held->wait_for(2);
      answer(*request, Value(first));
    }
  });
  load_plugin(HAMI_SURROUNDINGS);
  for (const std::string how : {"Forward[node.*]", "BackgroundThread[Forward[node.*]]", "BuiltFind(name=node.*)"}) {
    CAPTURE(how);
    const auto passes_on_to = [&](const char* node) {
      std::string there = how;
      return "S[TestTurn,Filter[TestComesFirst," + there.replace(there.find('*'), 1, node) + "]]";
    };
    PipeConfig config;
    config.nodes = {{"a", {{"backend", Value(passes_on_to("b"))}}}, {"b", {{"backend", Value(passes_on_to("a"))}}}};
    TestPipe pipe(config);
    held.emplace();
    std::vector<TestPipe::Pending> submitted{pipe.submit(Nodes::to("a", 1)), pipe.submit(Nodes::to("b", 2))};
    check_one_closed(submitted);
    // On the threads of callers.
    held.emplace();
    std::atomic<int> closed{0};
    Latch ended;
    std::vector<std::thread> callers;
    for (const char* node : {"a", "b"})
      callers.emplace_back([&, node] {
        const Outcome made = pipe.call(Nodes::to(node, 1));
        if (made.good)
          CHECK_EQ(made.number(), 21);
        else
          CHECK(made.code == ErrorCode::kReentrantCall);
        closed += !made.good;
        ended.add();
      });
    ended.wait_for(2);
    for (std::thread& caller : callers) caller.join();
    CHECK_EQ(closed, 1);
  }
}

TEST_CASE("forwarded parts of a list are detected in a deadlock cycle") {
  std::optional<Latch> held;
  define("TestMeets", [&](Batch batch, const Params&) {
    for (Request* request : batch) {
      held->add();
      held->wait_for(2);
      request->dict.set(kResult, *request->dict.find(kData));
    }
  });
  define("TestIsList", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(request->dict.find(kData)->kind() == Kind::kList));
  });
  load_plugin(HAMI_GOLDEN);
  for (const std::string how : {"FanOut", "BuiltEach"}) {
    CAPTURE(how);
    const auto passes_on_to = [&](const std::string& node) {
      return Value("Filter[TestIsList,S[TestMeets," + how + "[Forward[node." + node + "]]]]");
    };
    PipeConfig config;
    config.nodes = {{"a", {{"backend", passes_on_to("b")}}}, {"b", {{"backend", passes_on_to("a")}}}};
    TestPipe pipe(config);
    held.emplace();
    std::vector<TestPipe::Pending> submitted;
    for (const char* node : {"a", "b"}) {
      Dict dict = request_of(make_list({1, 2, 3}));
      dict.enter("node_name", Value(node));
      submitted.push_back(pipe.submit(std::move(dict)));
    }
    check_one_closed(submitted);
  }
}
