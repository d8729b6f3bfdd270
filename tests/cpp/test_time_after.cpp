// The rest of a graph: how long it takes by the learned times, and which requests therefore fail before they run.
#include <string>
#include <vector>

#include "pipes.hpp"
#include "schedule/service_time_model.hpp"
#include "schedule/time_after.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr double kHour = 3600e9;

void learn(SharedTime& time, double certain, Nanoseconds until = kNever) {
  time.set({{certain, {certain, 2 * certain, 3 * certain}}, until, until});
}

// Graph of nodes with times, which are 1, 10, 100 and so on.
struct Timed {
  explicit Timed(const GraphSpec& nodes) : graph(nodes), shared(nodes.size()), times(graph, all()) {
    double time = 1;
    for (SharedTime& one : shared) learn(one, time), time *= 10;
  }
  std::vector<const SharedTime*> all() const {
    std::vector<const SharedTime*> pointers;
    for (std::size_t node = 0; node < shared.size(); ++node)
      pointers.push_back(graph.nodes()[node].is_or ? nullptr : &shared[node]);
    return pointers;
  }
  std::vector<double> certain(Nanoseconds moment = 0) const {
    std::vector<double> found;
    for (std::size_t node = 0; node < shared.size(); ++node) found.push_back(times.after(node, moment).certain);
    return found;
  }

  Graph graph;
  std::vector<SharedTime> shared;
  GraphTimes times;
};

GraphNode node_of(const char* name, std::vector<std::string> next) {
  GraphNode node;
  node.name = name;
  node.next = std::move(next);
  return node;
}

using Times = std::vector<double>;

// A pipe whose nodes have not run: the test sets the times that they have learned.
struct Noted {
  explicit Noted(const PipeConfig& config) : pipe(config) {}
  void learns(const char* node) { learn(pipe->context().resources.times(node).learned, kHour); }
  CallResult within_half_an_hour(Dict dict) {
    dict.enter("timeout", text("30min"));
    return pipe.call(std::move(dict));
  }
  CallResult within_half_an_hour(std::int64_t data) { return within_half_an_hour(request_of(Value(data))); }
  std::uint64_t expired(const char* node) { return pipe->stats().at(node).expired.load(); }
  std::uint64_t batches(const char* node) { return pipe->stats().at(node).batches.load(); }

  TestPipe pipe;
};

void define_steps() {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 8}, ""});
  define("TestSum", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) + request->dict.find("other")->as_int()));
  }, {own_thread(), {1, 8}, ""});
  define("TestSkipsOdd", [](Batch batch, const Params&) {
    for (Request* request : batch)
      if (number(*request) % 2 != 0)
        request->fail(Error(ErrorCode::kSkipped, "odd"));
      else
        answer(*request, Value(number(*request)));
  }, {own_thread(), {1, 8}, ""});
}

PipeConfig::Section step(const char* name, const char* next) {
  Keys keys{{"backend", "TestAddOne"}};
  if (*next) keys.emplace_back("next", next);
  return {name, std::move(keys)};
}

}  // namespace

TEST_CASE("the rest of a graph takes as long as its slowest way") {
  const Timed chain({node_of("a", {"b"}), node_of("b", {"c"}), node_of("c", {})});
  CHECK_EQ(chain.certain(), (Times{110, 100, 0}));
  CHECK_EQ(chain.times.after(0, 0).range.usual, 220);
  CHECK_EQ(chain.times.after(0, 0).range.most, 330);
  // d comes after b and c, which come after a; the nodes are not in the order of the graph.
  GraphNode join = node_of("d", {});
  join.map = {{"b", "result", "data"}, {"c", "result", "other"}};
  const Timed diamond({join, node_of("b", {"d"}), node_of("c", {"d"}), node_of("a", {"b", "c"})});
  CHECK_EQ(diamond.certain(), (Times{0, 1, 1, 101}));
  const Timed two_ends({node_of("a", {"b", "c"}), node_of("b", {}), node_of("c", {})});
  CHECK_EQ(two_ends.certain(), (Times{100, 0, 0}));
}

TEST_CASE("a node that a request may pass without a run adds no time to the rest, and a skip ends it") {
  GraphNode either = node_of("b", {"c"});
  either.is_or = true;
  CHECK_EQ(Timed({node_of("a", {"b"}), either, node_of("c", {})}).certain(), (Times{100, 100, 0}));
  Timed chain({node_of("a", {"b"}), node_of("b", {"c"}), node_of("c", {})});
  CHECK_EQ(chain.certain(), (Times{110, 100, 0}));
  chain.times.note_skip(1);
  CHECK_EQ(chain.certain(), (Times{10, 0, 0}));
  chain.times.note_skip(0);
  CHECK_EQ(chain.certain(), (Times{0, 0, 0}));
  // d needs b and c, so it does not run after a skip of b, and e neither.
  GraphNode join = node_of("d", {"e"});
  join.map = {{"b", "result", "data"}, {"c", "result", "other"}};
  Timed diamond({node_of("a", {"b", "c"}), node_of("b", {"d"}), node_of("c", {"d"}), join, node_of("e", {})});
  CHECK_EQ(diamond.certain(), (Times{11'100, 11'000, 11'000, 10'000, 0}));
  diamond.times.note_skip(1);
  CHECK_EQ(diamond.certain(), (Times{100, 0, 0, 0, 0}));
}

TEST_CASE("the time of a node counts in the rest only as long as it counts at the node") {
  Timed chain({node_of("a", {"b"}), node_of("b", {"c"}), node_of("c", {})});
  learn(chain.shared[2], 100, 50);
  CHECK_EQ(chain.certain(50), (Times{110, 100, 0}));
  CHECK_EQ(chain.certain(51), (Times{10, 0, 0}));
  ServiceTimeModel model;
  for (std::size_t run = 0; run < policy::kKnown; ++run) model.add(4, 1000, 10'000);
  for (const Nanoseconds moment : {10'000, 10'375, 10'376, 18'000, 18'001}) {
    SharedTime shared;
    shared.set(model.estimate(1, 4, 10'000));
    CHECK_EQ(shared.at(moment).certain, model.certain(1, moment));
    CHECK_EQ(shared.at(moment).range.least, model.range(4, moment).value_or(TimeRange{}).least);
  }
}

TEST_CASE("a graph of many branches that join costs no more than its nodes") {
  GraphSpec nodes;
  constexpr std::size_t kJoins = 60;  // 2^60 ways
  for (std::size_t i = 0; i < kJoins; ++i) {
    const std::string number = std::to_string(i), next = std::to_string(i + 1);
    nodes.push_back(node_of(("s" + number).c_str(), {"l" + number, "r" + number}));
    nodes.push_back(node_of(("l" + number).c_str(), {"s" + next}));
    nodes.push_back(node_of(("r" + number).c_str(), {"s" + next}));
    if (i > 0) nodes[3 * i].map = {{"l" + std::to_string(i - 1), "result", "data"}};
  }
  nodes.push_back(node_of(("s" + std::to_string(kJoins)).c_str(), {}));
  nodes.back().map = {{"l" + std::to_string(kJoins - 1), "result", "data"}};
  Timed graph(nodes);
  for (SharedTime& one : graph.shared) learn(one, 1);
  CHECK_EQ(graph.times.after(0, 0).certain, 2.0 * kJoins);
}

TEST_CASE("a request that cannot end in time in the rest of its graph fails at the first node, and does not run") {
  define_steps();
  Noted noted(graph({step("a", "b"), step("b", "c"), step("c", "")}));
  CHECK_EQ(noted.within_half_an_hour(1).number(), 4);  // nothing is learned
  noted.learns("c");
  const std::uint64_t ran = noted.batches("a");
  const CallResult late = noted.within_half_an_hour(1);
  CHECK(late.code == ErrorCode::kDeadlineExceeded);
  CHECK_NE(late.message.find("node \"a\" did not run this request, which takes at least 1h until the last node has"),
           std::string::npos);
  CHECK_EQ(noted.batches("a"), ran);
  CHECK_EQ(noted.expired("a"), 1u);
  CHECK_EQ(noted.expired("c"), 0u);
  CHECK_EQ(noted.pipe.call(Value(1)).number(), 4);  // no timeout
  noted.learns("c");
  Dict long_timeout = request_of(Value(1));
  long_timeout.enter("timeout", text("2h"));
  CHECK_EQ(noted.pipe.call(std::move(long_timeout)).number(), 4);
  noted.learns("a");
  Dict last = request_of(Value(1));
  last.enter("node_name", Value("c"));
  CHECK_EQ(noted.within_half_an_hour(std::move(last)).number(), 2);
}

TEST_CASE("a request whose caller takes parts runs, however long the rest of its graph takes") {
  define_steps();
  Noted noted(graph({step("a", "b"), step("b", "")}));
  noted.learns("b");
  Dict streams = request_of(Value(1));
  streams.enter("parts", Value::share(*make_object<Queue>(4)));
  CHECK_EQ(noted.within_half_an_hour(std::move(streams)).number(), 3);
}

TEST_CASE("branches: the slowest one counts, and for each node of a branch what comes after it") {
  define_steps();
  const PipeConfig diamond =
      graph({step("start", "left, right"),
             step("left", "join"),
             step("right", "join"),
             {"join", {{"backend", "TestSum"}, {"map", "left[result:data], right[result:other]"}}}});
  for (const char* slow : {"left", "right", "join"}) {
    Noted noted(diamond);
    noted.learns(slow);
    CHECK(noted.within_half_an_hour(1).code == ErrorCode::kDeadlineExceeded);
    CHECK_EQ(noted.expired("start"), 1u);
  }
  Noted noted(diamond);
  noted.learns("start");  // nothing comes after it again
  CHECK_EQ(noted.within_half_an_hour(1).number(), 6);
}

TEST_CASE("a node after one that skips requests does not fail those that never reach it") {
  define_steps();
  Noted noted(graph({{"a", {{"backend", "TestSkipsOdd"}, {"next", "b"}}}, step("b", "")}));
  noted.learns("b");
  CHECK(noted.within_half_an_hour(2).code == ErrorCode::kDeadlineExceeded);
  CHECK(noted.pipe.call(Value(1)).code == ErrorCode::kSkipped);
  CHECK(noted.within_half_an_hour(3).code == ErrorCode::kSkipped);
  CHECK_EQ(noted.batches("a"), 2u);
}

TEST_CASE("a node that needs one that skips requests does not fail those of its other branches") {
  define_steps();
  Noted noted(graph({step("start", "left, right"),
                     {"left", {{"backend", "TestSkipsOdd"}, {"next", "join"}}},
                     step("right", "join, end"),
                     {"join", {{"backend", "TestSum"}, {"map", "left[result:data], right[result:other]"}}},
                     step("end", "")}));
  noted.learns("join");
  CHECK(noted.within_half_an_hour(0).code == ErrorCode::kDeadlineExceeded);
  CHECK(noted.pipe.call(Value(0)).good);
  noted.learns("join");
  CHECK(noted.within_half_an_hour(0).good);
}

TEST_CASE("a node that some requests pass without a run never fails the others before it") {
  define_steps();
  SUBCASE("or") {
    Noted noted(graph({step("a", "b"), {"b", {{"backend", "TestAddOne"}, {"or", true}}}}));
    noted.learns("b");
    CHECK_EQ(noted.within_half_an_hour(1).number(), 2);
  }
  SUBCASE("an entrypoint of its own, which may answer itself") {
    define("TestNoElements", [](Batch batch, const Params&) {
      for (Request* request : batch) answer(*request, make_list({}));
    }, {own_thread(), {1, 8}, ""});
    Noted noted(graph({{"a", {{"backend", "TestNoElements"}, {"next", "b"}}},
                       {"b",
                        {{"backend", "TestAddOne"},
                         {"node_entrypoint",
                          "List[InstancesRegister[Reflect[backend]], "
                          "Register[FanOut[DI[Batching, InstanceDispatcher]]]]"}}}}));
    noted.learns("b");
    CHECK(noted.within_half_an_hour(1).good);
  }
}

TEST_CASE("a node that another one calls runs the request, without what comes after it in the graph") {
  define_steps();
  Noted noted(graph({step("a", "b"), step("b", ""), {"c", {{"backend", "S[Identity, Forward[node.a]]"}}}}));
  noted.learns("b");
  Dict called = request_of(Value(1));
  called.enter("node_name", Value("c"));
  CHECK_EQ(noted.within_half_an_hour(std::move(called)).number(), 2);
  Dict direct = request_of(Value(1));
  direct.enter("node_name", Value("a"));
  CHECK(noted.within_half_an_hour(std::move(direct)).code == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("the parts of a request have as much time as the request") {
  define_steps();
  define("TestCount", [](Batch batch, const Params&) {
    for (Request* request : batch)
      answer(*request, Value(static_cast<std::int64_t>(request->dict.find(kData)->as_list().size())));
  }, {own_thread(), {1, 8}, ""});
  Noted noted(graph({{"a",
                      {{"backend", "TestAddOne"},
                       {"next", "b"},
                       {"node_entrypoint",
                        "List[InstancesRegister[Reflect[backend]], "
                        "Register[FanOut[DI[Batching, InstanceDispatcher]]]]"}}},
                     {"b", {{"backend", "TestCount"}}}}));
  const auto two = [] { return request_of(make_list({Value(1), Value(2)})); };
  CHECK_EQ(noted.within_half_an_hour(two()).number(), 2);
  noted.learns("b");
  const std::uint64_t ran = noted.batches("a");
  CHECK(noted.within_half_an_hour(two()).code == ErrorCode::kDeadlineExceeded);
  CHECK_EQ(noted.batches("a"), ran);
}
