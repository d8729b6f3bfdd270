// Nodes that skip a request: what follows them, merges that accept a skipped branch, and requests of which nothing is left.
#include <map>
#include <random>
#include <set>

#include "pipe/planner.hpp"
#include "pipes.hpp"
#include "schedule/graph.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr const char* kSkippedText =
    "the request was skipped and has no `result`; to give it one, set `otherwise` to \"pass\" or to an expression";

void define_branches() {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 8}, ""});
  define("TestTimesTen", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) * 10));
  }, {{}, {1, 8}, ""});
  define("TestEven", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) % 2 == 0));
  }, {{}, {1, 8}, ""});
  define("TestSmall", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) < 10));
  }, {{}, {1, 8}, ""});
  // The sum of the keys `left` and `right` that the request has.
  define("TestSum", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      std::int64_t sum = 0;
      for (const char* key : {"left", "right"})
        if (const Value* value = request->dict.find(key)) sum += value->as_int();
      answer(*request, Value(sum));
    }
  }, {{}, {1, 8}, ""});
}

// left runs on even numbers and adds 1, right on numbers below 10 and multiplies by 10.
PipeConfig two_branches(bool accept_skipped) {
  Keys join{{"backend", "TestSum"}, {"map", "left[result:left],right[result:right]"}};
  if (accept_skipped) join.emplace_back("accept_skipped", true);
  return graph(
      {{"start", {{"backend", "Identity"}, {"next", "left,right"}}},
       {"left", {{"backend", "TestAddOne"}, {"filter", "TestEven"}, {"otherwise", "skip"}, {"next", "join"}}},
       {"right", {{"backend", "TestTimesTen"}, {"filter", "TestSmall"}, {"otherwise", "skip"}, {"next", "join"}}},
       {"join", std::move(join)}});
}

std::string or_skipped(const std::vector<CallResult>& outcomes) {
  std::string text;
  for (const CallResult& made : outcomes) {
    text += text.empty() ? "" : ", ";
    if (made.good)
      text += std::to_string(made.number());
    else
      text += made.code == ErrorCode::kSkipped ? "skipped" : made.message;
  }
  return text;
}

}  // namespace

TEST_CASE("the key otherwise decides what happens to requests for which the filter is false") {
  define_branches();
  const auto outcomes = [](const char* otherwise) {
    TestPipe pipe({{"backend", "TestAddOne"}, {"filter", "TestEven"}, {"otherwise", otherwise}, {"max", 8}});
    return or_skipped(pipe.call_many(requests_of({1, 2, 3, 4})));
  };
  CHECK_EQ(outcomes("pass"), "1, 3, 3, 5");
  CHECK_EQ(outcomes("skip"), "skipped, 3, skipped, 5");
  CHECK_EQ(outcomes("S[TestTimesTen,TestAddOne]"), "11, 3, 31, 5");
  CHECK_EQ(outcomes("Skip"), "skipped, 3, skipped, 5");
  TestPipe pipe({{"backend", "Filter[TestEven,TestAddOne,TestTimesTen]"}, {"max", 8}});
  CHECK_EQ(or_skipped(pipe.call_many(requests_of({1, 2, 3, 4}))), "10, 3, 30, 5");
}

TEST_CASE("a request that is skipped as a whole fails with NoResult, names the node and counts as completed") {
  define_branches();
  TestPipe pipe({{"backend", "TestAddOne"}, {"filter", "TestEven"}, {"otherwise", "skip"}});
  const CallResult made = pipe.call(Value(1));
  CHECK(made.code == ErrorCode::kSkipped);
  CHECK_EQ(made.message, kSkippedText);
  CHECK(made.notes == std::vector<std::string>{"node \"n\""});
  CHECK_EQ(pipe->stats().at("n").completed.load(), 1u);
  CHECK_EQ(pipe->stats().at("n").failed.load(), 0u);
}

TEST_CASE("the nodes after a skipped node do not run, nodes with or included") {
  define_branches();
  TestPipe pipe(graph({{"a", {{"backend", "Identity"}, {"filter", "TestEven"}, {"otherwise", "skip"}, {"next", "b,e"}}},
                       {"b", {{"backend", "TestAddOne"}, {"or", true}, {"next", "c"}}},
                       {"c", {{"backend", "TestAddOne"}, {"next", "d"}}},
                       {"d", {{"backend", "TestAddOne"}, {"map", "c[result:data]"}}},
                       {"e", {{"backend", "TestAddOne"}}}}));
  const CallResult made = pipe.call(Value(1));
  CHECK_EQ(made.message, kSkippedText);
  CHECK(made.notes == std::vector<std::string>{"node \"a\""});
  for (const char* node : {"b", "c", "d", "e"}) CHECK_EQ(pipe->stats().at(node).submitted.load(), 0u);
  CHECK(pipe.call(Value(2)).good);
}

TEST_CASE("a merge is skipped with one of its branches, or runs with the others if it accepts that") {
  define_branches();
  // 2: both branches; 1: right only; 12: left only; 11: none.
  TestPipe strict(two_branches(false));
  CHECK_EQ(or_skipped(strict.call_many(requests_of({2, 1, 12, 11, 4}))), "23, skipped, skipped, skipped, 45");
  TestPipe lenient(two_branches(true));
  CHECK_EQ(or_skipped(lenient.call_many(requests_of({2, 1, 12, 11, 4}))), "23, 10, 13, skipped, 45");
  const CallResult none = lenient.call(Value(11));
  CHECK_EQ(none.message, kSkippedText);
  CHECK_EQ(lenient->stats().at("join").submitted.load(), 4u);
}

TEST_CASE("a merge with a skipped predecessor that its map does not name is skipped unless it accepts that") {
  define_branches();
  for (const bool accepts : {false, true}) {
    PipeConfig config = two_branches(accepts);
    for (auto& [key, value] : config.nodes[3].keys)
      if (key == "map") value = Value("right[result:right]");
    TestPipe pipe(config);
    CHECK_EQ(or_skipped(pipe.call_many(requests_of({2, 1, 12}))), accepts ? "20, 10, skipped" : "20, skipped, skipped");
  }
}

TEST_CASE("a merge that accepts skipped nodes runs with what came from further before") {
  define_branches();
  TestPipe pipe(
      graph({{"a", {{"backend", "TestAddOne"}, {"next", "b"}}},
             {"b", {{"backend", "TestTimesTen"}, {"filter", "TestEven"}, {"otherwise", "skip"}, {"next", "c"}}},
             {"c", {{"backend", "TestSum"}, {"map", "a[result:left],b[result:right]"}, {"accept_skipped", true}}}}));
  CHECK_EQ(pipe.call(Value(1)).number(), 22);
  CHECK_EQ(pipe.call(Value(2)).number(), 3);
}

TEST_CASE("of several last nodes the result has those that ran, also if it is only one") {
  define_branches();
  PipeConfig config = two_branches(false);
  config.nodes.pop_back();
  for (PipeConfig::Section& node : config.nodes)
    for (auto& [key, value] : node.keys)
      if (key == "next" && value.as_text() == "join") value = Value(make_list({}));
  TestPipe pipe(config);
  const auto text_of = [](const CallResult& made) {
    if (!made.good) return made.message;
    std::string text;
    for (const auto& [name, value] : static_cast<const MapObject*>(made.result().object())->entries())
      text += name + "=" + std::to_string(value.as_int()) + " ";
    return text;
  };
  const std::vector<CallResult> made = pipe.call_many(requests_of({2, 1, 12, 11}));
  CHECK_EQ(text_of(made[0]), "left=3 right=20 ");
  CHECK_EQ(text_of(made[1]), "right=10 ");
  CHECK_EQ(text_of(made[2]), "left=13 ");
  CHECK_EQ(text_of(made[3]), kSkippedText);
  // A request that starts at a last node has the shape of that node.
  Dict from_left = request_of(Value(2));
  from_left.enter("node_name", Value("left"));
  CHECK_EQ(pipe.call(std::move(from_left)).number(), 3);
}

TEST_CASE("a failure after a skip is the outcome, and a skip after a failure is not") {
  define_branches();
  define("TestFails", [](Batch, const Params&) { throw Error(ErrorCode::kRequest, "it failed"); });
  PipeConfig config = two_branches(true);
  config.nodes[2].keys[0].second = Value("TestFails");
  TestPipe pipe(config);
  CHECK_EQ(or_skipped(pipe.call_many(requests_of({1, 2, 12, 11}))), "it failed, it failed, 13, skipped");
}

TEST_CASE("an element that is skipped fails its list") {
  define_branches();
  TestPipe pipe({{"backend", "FanOut[Filter[TestEven,TestAddOne,Skip]]"}});
  CHECK_EQ(pipe.call(make_list({Value(2), Value(4)})).result().as_list().size(), 2u);
  const CallResult made = pipe.call(make_list({Value(2), Value(3)}));
  CHECK(made.code == ErrorCode::kNoResult);
  CHECK_EQ(made.message, kSkippedText);
}

TEST_CASE("a long branch is skipped without deep recursion") {
  define_branches();
  std::vector<PipeConfig::Section> nodes;
  constexpr std::size_t kNodes = 3000;
  GraphSpec spec;
  for (std::size_t i = 0; i < kNodes; ++i) {
    nodes.push_back({"n" + std::to_string(i), {{"backend", i == 0 ? "Skip" : "Identity"}}});
    if (i > 0) nodes[i - 1].keys.emplace_back("next", nodes[i].name);
  }
  TestPipe pipe(graph(std::move(nodes)));
  CHECK_EQ(pipe.call(Value(5)).message, kSkippedText);
}

TEST_CASE("mistakes with otherwise and accept_skipped are found when the pipe is built") {
  define_branches();
  CHECK_EQ(problems_of(graph({{"a", {{"backend", "Identity"}, {"otherwise", "skip"}}}})),
           "node \"a\" has otherwise and no filter\n  in  otherwise = \"skip\"   (node \"a\")\n      ^^^^^^^^^\n"
           "  add  filter = \"…\"\n");
  CHECK_EQ(problems_of(graph({{"a", {{"backend", "Identity"}, {"filter", "TestEven"}, {"otherwise", "Skp"}}}})),
           "backend \"Skp\" not found; did you mean Skip?\n  in  Skp   (node \"a\")\n      ^^^\n");
  CHECK_EQ(problems_of(graph({{"a", {{"backend", "Identity"}, {"filter", "TestEven"}, {"otherwise", 3}}}})),
           "\"otherwise\" must be a pipeline expression in quotes, got int\n  in  otherwise = 3   (node \"a\")\n"
           "      ^^^^^^^^^\n");
  CHECK_EQ(problems_of(graph({{"a", {{"backend", "Identity"}, {"next", "b"}}},
                              {"b", {{"backend", "Identity"}, {"accept_skipped", true}}}})),
           "node \"b\" has accept_skipped = true and no map\n  in  accept_skipped = true   (node \"b\")\n"
           "      ^^^^^^^^^^^^^^\n  only a node with a map can run if a node before it was skipped\n");
  CHECK_EQ(
      problems_of(graph({{"a", {{"backend", "Identity"}, {"accept_skipped", "maybe"}}}})),
      "parameter \"accept_skipped\" of node \"a\" takes bool (true, false, yes, no, on, off, 1 or 0), got \"maybe\"\n"
      "  in  accept_skipped = \"maybe\"   (node \"a\")\n      ^^^^^^^^^^^^^^\n");
}

namespace {

// A random graph and what must happen in it. The `data` of a request is its seed, which every node passes on.
class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937& random) : before_(3 + random() % 7), accepts_(before_.size()) {
    for (std::size_t node = 1; node < size(); ++node) {
      std::set<std::size_t> before;
      for (std::size_t edges = 1 + random() % 3; edges > 0; --edges) before.insert(random() % node);
      before_[node].assign(before.begin(), before.end());
      accepts_[node] = random() % 2 == 0;
    }
  }

  std::size_t size() const { return before_.size(); }

  enum Step { kRuns, kSkips, kFails };
  static Step step(std::int64_t seed, std::size_t node) {
    const auto mixed = static_cast<std::uint32_t>(seed * 2654435761 + static_cast<std::int64_t>(node) * 40503) >> 7;
    return mixed % 16 == 0 ? kFails : mixed % 3 == 0 ? kSkips : kRuns;
  }

  PipeConfig config() const {
    PipeConfig config;
    for (std::size_t node = 0; node < size(); ++node) {
      PipeConfig::Section section{name(node),
                                  {{"backend", "TestRuns(" + std::to_string(node) + ")"},
                                   {"filter", "TestDecides(" + std::to_string(node) + ")"},
                                   {"otherwise", "skip"}}};
      std::vector<Value> next;
      for (std::size_t other = 0; other < size(); ++other)
        if (std::count(before_[other].begin(), before_[other].end(), node)) next.emplace_back(name(other));
      section.keys.emplace_back("next", make_list(std::move(next)));
      if (before_[node].size() > 1) {
        std::string map;
        for (std::size_t before : before_[node])
          map += (map.empty() ? "" : ",") + name(before) + "[result:" + name(before) + "]";
        section.keys.emplace_back("map", map);
        section.keys.emplace_back("accept_skipped", bool{accepts_[node]});
      }
      config.nodes.push_back(std::move(section));
    }
    return config;
  }

  struct Expected {
    bool fails = false;
    std::set<std::size_t> ran;   // in it, if nothing fails
    std::set<std::size_t> last;  // of those, the last nodes
  };
  Expected expected(std::int64_t seed) const {
    Expected made;
    std::set<std::size_t> with_next;
    for (std::size_t node = 0; node < size(); ++node) {
      const std::vector<std::size_t>& before = before_[node];
      with_next.insert(before.begin(), before.end());
      const auto ran = static_cast<std::size_t>(
          std::count_if(before.begin(), before.end(), [&](std::size_t one) { return made.ran.count(one) > 0; }));
      const bool reached = before.size() > 1 && accepts_[node] ? ran > 0 : ran == before.size();
      if (!reached) continue;
      made.fails = made.fails || step(seed, node) == kFails;
      if (step(seed, node) == kRuns) made.ran.insert(node);
    }
    for (std::size_t node : made.ran)
      if (!with_next.count(node)) made.last.insert(node);
    return made;
  }

  std::size_t last_nodes() const {
    std::set<std::size_t> with_next;
    for (const auto& before : before_) with_next.insert(before.begin(), before.end());
    return size() - with_next.size();
  }

  static std::string name(std::size_t node) { return "n" + std::to_string(node); }

 private:
  std::vector<std::vector<std::size_t>> before_;
  std::vector<bool> accepts_;
};

// The seed of a request: its `data`, or any key that a map has delivered.
std::int64_t seed_of(const Request& request) {
  for (const Dict::Entry& entry : request.dict)
    if (entry.value.kind() == Kind::kInt) return entry.value.as_int();
  return -1;
}

}  // namespace

TEST_CASE("in random graphs each request of a batch ends once, with the results of the nodes that run") {
  std::mt19937 random(20261124);
  std::mutex mutex;
  std::map<std::int64_t, std::multiset<std::size_t>> ran;
  const auto node_of = [](const Params& params) { return static_cast<std::size_t>(params.get<std::int64_t>("node")); };
  for (const bool inline_nodes : {true, false}) {
    const Traits traits = inline_nodes ? Traits{ThreadMode::kConcurrent, true, true} : any_thread();
    define("TestDecides", [=](Batch batch, const Params& params) {
      for (Request* request : batch)
        answer(*request, Value(RandomGraph::step(seed_of(*request), node_of(params)) != RandomGraph::kSkips));
    }, {traits, {1, 8}, "node: int"});
    define("TestRuns", [&, node_of](Batch batch, const Params& params) {
      for (Request* request : batch) {
        const std::int64_t seed = seed_of(*request);
        if (RandomGraph::step(seed, node_of(params)) == RandomGraph::kFails) {
          request->fail(Error(ErrorCode::kRequest, "it failed"));
          continue;
        }
        answer(*request, Value(seed));
        const std::lock_guard lock(mutex);
        ran[seed].insert(node_of(params));
      }
    }, {traits, {1, 8}, "node: int"});
    for (int round = 0; round < 60; ++round) {
      const RandomGraph graph(random);
      TestPipe pipe(graph.config());
      ran.clear();
      std::vector<std::int64_t> seeds;
      for (std::int64_t seed = 0; seed < 24; ++seed) seeds.push_back(1 + round * 24 + seed);
      TestPipe::Pending pending = pipe.submit_many(requests_of(seeds));
      pending.done->wait_for(1);
      for (std::size_t i = 0; i < seeds.size(); ++i) {
        const CallResult made = outcome(*pending.call, i);
        const RandomGraph::Expected expected = graph.expected(seeds[i]);
        CAPTURE(seeds[i]);
        if (expected.fails) {
          CHECK_EQ(made.message, "it failed");
          continue;
        }
        CHECK(ran[seeds[i]] == std::multiset<std::size_t>(expected.ran.begin(), expected.ran.end()));
        if (expected.last.empty()) {
          CHECK(made.code == ErrorCode::kSkipped);
        } else if (graph.last_nodes() == 1) {
          CHECK_EQ(made.number(), seeds[i]);
        } else {
          REQUIRE(made.result().kind() == Kind::kDict);
          std::set<std::string> names, wanted;
          for (const auto& [name, value] : static_cast<const MapObject*>(made.result().object())->entries())
            names.insert(name);
          for (std::size_t node : expected.last) wanted.insert(RandomGraph::name(node));
          CHECK(names == wanted);
        }
      }
      CHECK_EQ(pending.done->count(), 1u);
    }
  }
}
