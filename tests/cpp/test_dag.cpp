// Graphs of nodes: ways, joins, branches that fail, and everything about a graph that is refused.
#include <algorithm>
#include <thread>

#include "pipe/planner.hpp"
#include "pipes.hpp"
#include "schedule/graph.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

void define_steps() {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 8}, ""});
  define("TestTimesTen", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) * 10));
  });
  define("TestSum", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(number(*request) + request->dict.find("other")->as_int()));
  });
}

PipeConfig diamond(const char* left, const char* right) {
  return graph({{"start", {{"backend", "TestAddOne"}, {"next", "left, right"}}},
                {"left", {{"backend", left}, {"next", "join"}}},
                {"right", {{"backend", right}, {"next", "join"}}},
                {"join", {{"backend", "TestSum"}, {"map", "left[result:data], right[result:other]"}}}});
}

}  // namespace

TEST_CASE("a request goes from node to node, from the one it names") {
  define_steps();
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}, {"next", "b"}}},
                       {"b", {{"backend", "TestTimesTen"}, {"next", "c"}}},
                       {"c", {{"backend", "TestAddOne"}}}}));
  Dict dict = request_of(Value(1));
  dict.enter("kept", Value("k"));
  const CallResult made = pipe.call(std::move(dict));
  CHECK_EQ(made.number(), 21);
  CHECK_EQ(made.dict.find("data")->as_int(), 1);
  CHECK_EQ(made.dict.find("kept")->as_text(), "k");
  Dict from_b = request_of(Value(1));
  from_b.enter("node_name", Value("b"));
  CHECK_EQ(pipe.call(std::move(from_b)).number(), 11);
  Dict unknown = request_of(Value(1));
  unknown.enter("node_name", Value("d"));
  CHECK_EQ(pipe.call(std::move(unknown)).message, "node_name is \"d\", which does not exist; the entry nodes are a");
  Dict wrong = request_of(Value(1));
  wrong.enter("node_name", Value(1));
  CHECK_EQ(pipe.call(std::move(wrong)).message, "node_name must be a str, got int");
  // Batches stay batches between nodes.
  std::vector<CallResult> many = pipe.call_many(requests_of({1, 2, 3}));
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQ(many[i].number(), 10 * (static_cast<int>(i) + 2) + 1);
}

TEST_CASE("of a long way a thread runs only so many nodes one inside the other") {
  std::vector<PipeConfig::Section> nodes;
  constexpr std::size_t kNodes = 200;
  for (std::size_t i = 0; i < kNodes; ++i) {
    nodes.push_back({"n" + std::to_string(i), {{"backend", "Identity"}}});
    if (i > 0) nodes[i - 1].keys.emplace_back("next", nodes[i].name);
  }
  TestPipe pipe(graph(std::move(nodes)));
  CHECK_EQ(pipe.call(Value(5)).number(), 5);
  std::size_t in_a_row = 0, most = 0, handed_over = 0;
  for (std::size_t i = 0; i < kNodes; ++i) {
    const bool on_top = pipe->stats().at("n" + std::to_string(i)).inline_batches > 0;
    in_a_row = on_top ? in_a_row + 1 : 0;
    handed_over += !on_top;
    most = std::max(most, in_a_row);
  }
  CHECK_EQ(most, 64u);
  CHECK_EQ(handed_over, 3u);
}

TEST_CASE("branches run at the same time and join through a map") {
  define_steps();
  TestPipe pipe(diamond("TestTimesTen", "TestAddOne"));
  Dict dict = request_of(Value(1));
  dict.enter("req_id", Value("r"));
  dict.enter("extra", Value(1));
  CHECK_EQ(pipe.call(std::move(dict)).number(), 23);
  const Gated left("TestLeft"), right("TestRight");
  TestPipe gated(diamond("TestLeft", "TestRight"));
  TestPipe::Pending pending = gated.submit(Value(1));
  left.gate->arrived.wait_for(1);
  right.gate->arrived.wait_for(1);
  left.gate->open();
  right.gate->open();
  CHECK_EQ(pending.wait().number(), 204);
}

TEST_CASE("a map starts from the named keys and the reserved ones") {
  define_steps();
  std::string keys;
  define("TestKeys", [&](Batch batch, const Params&) {
    for (const Dict::Entry& entry : batch[0].dict) keys += entry.key + " ";
    add(batch, 1);
  });
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}, {"next", "b"}}},
                       {"b", {{"backend", "TestKeys"}, {"map", "a[data:before,result:data]"}}}}));
  Dict dict = request_of(Value(1));
  for (const char* key : {"req_id", "extra", "priority"}) dict.enter(key, Value(0));
  CHECK_EQ(pipe.call(std::move(dict)).number(), 3);
  CHECK_EQ(keys, "req_id priority before data ");
}

TEST_CASE("a key that a map needs and no node has set fails the request") {
  define_steps();
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}, {"next", "b"}}},
                       {"b", {{"backend", "TestAddOne"}, {"map", "a[boxes:data]"}}}}));
  const CallResult made = pipe.call(Value(1));
  CHECK(made.code == ErrorCode::kRequest);
  CHECK_EQ(made.message, "map of node \"b\": node \"a\" left no `boxes`");
}

TEST_CASE("several last nodes give a dict by name") {
  define_steps();
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}, {"next", "b,c"}}},
                       {"b", {{"backend", "TestTimesTen"}}},
                       {"c", {{"backend", "TestAddOne"}}}}));
  const CallResult made = pipe.call(Value(1));
  REQUIRE(made.result().kind() == Kind::kDict);
  std::string text;
  for (const auto& [name, value] : static_cast<const MapObject*>(made.result().object())->entries())
    text += name + "=" + std::to_string(value.as_int()) + " ";
  CHECK_EQ(text, "b=20 c=3 ");
}

TEST_CASE("a node with or runs only on what its predecessor left open") {
  define_steps();
  define("TestOdd", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      if (number(*request) % 2 == 1) answer(*request, Value(1000));
      if (number(*request) == 4) request->fail(Error(ErrorCode::kRequest, "a 4"));
    }
  });
  TestPipe pipe(graph({{"a", {{"backend", "TestOdd"}, {"next", "b"}}},
                       {"b", {{"backend", "TestTimesTen"}, {"or", true}, {"next", "c"}}},
                       {"c", {{"backend", "TestAddOne"}}}}));
  CHECK_EQ(pipe.call(Value(1)).number(), 1001);
  CHECK_EQ(pipe.call(Value(2)).number(), 21);
  CHECK_EQ(pipe.call(Value(4)).message, "a 4");
  CHECK_EQ(pipe->stats().at("b").submitted.load(), 1u);
}

TEST_CASE("a node that leaves no result fails the request by name") {
  define_steps();
  define("TestSilent", [](Batch, const Params&) {});
  TestPipe pipe(graph({{"a", {{"backend", "TestSilent"}, {"next", "b"}}}, {"b", {{"backend", "TestAddOne"}}}}));
  const CallResult made = pipe.call(Value(1));
  CHECK(made.code == ErrorCode::kNoResult);
  CHECK_EQ(made.message, "node \"a\" left no `result`");
}

TEST_CASE("the first error wins, later ones are notes, and nothing further is started") {
  define_steps();
  const Gated slow("TestSlow");
  // Quick: it runs, and its error is noted, before its neighbour is even begun.
  define("TestFailsLeft", [](Batch, const Params&) { throw Error(ErrorCode::kRequest, "left"); },
         {Traits{ThreadMode::kConcurrent, true, true}, {}, ""});
  Gate gate;
  define("TestFailsRight", [&](Batch, const Params&) {
    gate.pass();
    throw Error(ErrorCode::kRequest, "right");
  }, {own_thread(), {}, ""});
  TestPipe pipe(diamond("TestFailsLeft", "TestFailsRight"));
  TestPipe::Pending pending = pipe.submit(Value(1));
  gate.arrived.wait_for(1);
  CHECK_EQ(pipe->stats().at("left").failed.load(), 1u);
  CHECK_EQ(pending.done->count(), 0u);  // it has its outcome when all its branches are back
  gate.open();
  const CallResult made = pending.wait();
  CHECK_EQ(made.message, "left");
  CHECK(made.notes == std::vector<std::string>{"backend TestFailsLeft", "node \"left\"", "also failed: right"});
  CHECK_EQ(pipe->stats().at("join").submitted.load(), 0u);
}

TEST_CASE("a start node from which a later node lacks a source is refused for that request") {
  define_steps();
  TestPipe pipe(diamond("TestTimesTen", "TestAddOne"));
  Dict from_left = request_of(Value(1));
  from_left.enter("node_name", Value("left"));
  CHECK_EQ(pipe.call(std::move(from_left)).message,
           "a request that starts at node \"left\" never reaches node \"right\", which node \"join\" needs");
  Dict from_join = request_of(Value(1));
  from_join.enter("node_name", Value("join"));
  from_join.enter("other", Value(5));
  CHECK_EQ(pipe.call(std::move(from_join)).number(), 6);  // its own map is ignored: the request is its input
}

TEST_CASE("where there are several first nodes a request names its own") {
  define_steps();
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}}}, {"b", {{"backend", "TestTimesTen"}}}}));
  const CallResult made = pipe.call(Value(1));
  CHECK(made.code == ErrorCode::kRequest);
  CHECK_EQ(made.message, "the pipe has several entry nodes; choose one by the key `node_name`: a, b");
  Dict dict = request_of(Value(1));
  dict.enter("node_name", Value("b"));
  CHECK_EQ(pipe.call(std::move(dict)).number(), 10);
}

TEST_CASE("a deadline is kept while a request is on its way, and its last nodes are not run") {
  define_steps();
  const Gated gated("TestGated");
  TestPipe pipe(graph({{"a", {{"backend", "TestGated"}, {"next", "b"}}}, {"b", {{"backend", "TestAddOne"}}}}));
  TestPipe::Pending pending = pipe.submit(request_of(Value(1)), 1'000'000);
  CHECK(pending.wait().code == ErrorCode::kDeadlineExceeded);
  gated.gate->open();
  TestPipe::Pending next = pipe.submit(Value(2));
  CHECK_EQ(next.wait().number(), 103);
  CHECK_EQ(pipe->stats().at("b").batches.load(), 1u);
}

TEST_CASE("everything that is wrong with a graph is found at once") {
  define_steps();
  const auto node = [](const char* name, Keys keys) {
    keys.emplace_back("backend", "TestAddOne");
    return PipeConfig::Section{name, std::move(keys)};
  };
  CHECK_EQ(problems_of(graph({node("a", {{"next", "b"}}), node("b", {{"next", "a"}})})),
           "node \"a\" is its own successor\n  in  next = \"b\"   (node \"a\")\n      ^^^^\n"
           "  the nodes of a pipe must not form a cycle\n");
  CHECK_EQ(problems_of(graph({node("a", {{"next", "a"}})})),
           "node \"a\" is its own successor\n  in  next = \"a\"   (node \"a\")\n      ^^^^\n"
           "  the nodes of a pipe must not form a cycle\n");
  CHECK_EQ(problems_of(graph({node("a", {{"next", "b"}}), node("b", {{"map", "a[result:data]"}, {"or", true}}),
                              node("c", {{"map", "b[result:data]"}}), node("d", {{"or", "yes"}})})),
           "node \"b\" has both or and map\n  in  or = true   (node \"b\")\n      ^^\n  keep one of them\n"
           "node \"b\" has not run when \"c\" starts\n  in  map = \"b[result:data]\"   (node \"c\")\n      ^^^\n"
           "  map may name only nodes that come before it\n"
           "node \"d\" has or = true and no predecessor\n  in  or = \"yes\"   (node \"d\")\n      ^^\n"
           "  name it in another node's next\n");
}

TEST_CASE("an invalid graph is refused when the pipe is built, each mistake with its node and key") {
  const auto problems = [](GraphSpec spec) {
    std::string text;
    for (const GraphProblem& problem : check_graph(spec))
      text += problem.node + "." + problem.key + ": " + problem.headline + "\n";
    return text;
  };
  const auto node = [](const char* name, std::vector<std::string> next, std::vector<MapEntry> map = {},
                       bool is_or = false) { return GraphNode{name, std::move(next), std::move(map), is_or}; };
  CHECK_EQ(
      problems({node("a", {"b", "c"}), node("b", {"d"}), node("c", {"d"}), node("d", {}, {{"b", "result", "data"}})}),
      "");
  CHECK_EQ(problems({node("alone", {})}), "");
  CHECK_EQ(problems({node("alone", {"alone"})}), "alone.next: node \"alone\" is its own successor\n");
  CHECK_EQ(problems({node("alone", {}, {{"alone", "result", "data"}})}),
           "alone.map: node \"alone\" has not run when \"alone\" starts\n");
  CHECK_EQ(problems({node("detect", {"recogniz"}), node("recognize", {}, {{"detekt", "result", "data"}})}),
           "detect.next: node \"recogniz\" does not exist; did you mean recognize?\n"
           "recognize.map: node \"detekt\" does not exist; did you mean detect?\n");
  // One wrong name in `next` is one mistake; nodes that cannot be reached without it are not reported.
  CHECK_EQ(problems({node("a", {"bb"}), node("b", {"c"}), node("c", {}, {{"a", "result", "data"}}),
                     node("d", {}, {}, true)}),
           "a.next: node \"bb\" does not exist\n");
  CHECK_EQ(problems({node("a", {"b", "b"}), node("b", {})}), "a.next: node \"b\" is listed twice in `next`\n");
  CHECK_EQ(problems({node("a", {"c"}), node("b", {"c"}), node("c", {})}),
           "c.map: node \"c\" has 2 predecessors and no map\n");
  // c and d form a cycle that no edge enters: no request could ever reach them.
  CHECK_EQ(problems({node("a", {"b"}), node("b", {}), node("c", {"d"}), node("d", {"c"})}),
           "c.next: node \"c\" is its own successor\n");
  // e follows the cycle and is not part of it: the message does not name it.
  CHECK_EQ(problems({node("e", {}), node("a", {"b"}), node("b", {"c"}), node("c", {"a", "e"})}),
           "a.next: node \"a\" is its own successor\n");
  // A node beside the way there, one after it, and itself: none of them has run by then.
  CHECK_EQ(problems({node("a", {"b", "side"}), node("side", {}),
                     node("b", {"after"}, {{"side", "result", "x"}, {"after", "result", "y"}, {"b", "result", "z"}}),
                     node("after", {})}),
           "b.map: node \"side\" has not run when \"b\" starts\n"
           "b.map: node \"after\" has not run when \"b\" starts\n"
           "b.map: node \"b\" has not run when \"b\" starts\n");
  // But any node before it may be named, not only the last.
  CHECK_EQ(
      problems({node("a", {"b"}), node("b", {"c"}), node("c", {}, {{"a", "data", "page"}, {"b", "result", "data"}})}),
      "");
  CHECK_EQ(problems({node("a", {"b"}), node("b", {}, {{"a", "result", "data"}}, true), node("c", {}, {}, true)}),
           "b.or: node \"b\" has both or and map\n"
           "c.or: node \"c\" has or = true and no predecessor\n");
}

TEST_CASE("a join of several first nodes can be started from none of them, and from itself") {
  define_steps();
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}, {"next", "join"}}},
                       {"b", {{"backend", "TestAddOne"}, {"next", "join"}}},
                       {"join", {{"backend", "TestSum"}, {"map", "a[result:data],b[result:other]"}}}}));
  CHECK_EQ(pipe.call(Value(1)).message, "the pipe has several entry nodes; choose one by the key `node_name`: a, b");
  const auto from = [&](const char* start) {
    Dict dict = request_of(Value(1));
    dict.enter("node_name", Value(start));
    dict.enter("other", Value(2));
    return pipe.call(std::move(dict));
  };
  CHECK_EQ(from("a").message,
           "a request that starts at node \"a\" never reaches node \"b\", which node \"join\" needs");
  CHECK_EQ(from("b").message,
           "a request that starts at node \"b\" never reaches node \"a\", which node \"join\" needs");
  CHECK_EQ(from("join").number(), 3);
}

TEST_CASE("a map may name a node that came long before") {
  define_steps();
  TestPipe pipe(graph({{"a", {{"backend", "TestAddOne"}, {"next", "b"}}},
                       {"b", {{"backend", "TestTimesTen"}, {"next", "c"}}},
                       {"c", {{"backend", "TestSum"}, {"map", "b[result:data],a[result:other]"}}}}));
  CHECK_EQ(pipe.call(Value(1)).number(), 22);
}

TEST_CASE("next and map are read as written, or refused with the reason") {
  CHECK(parse_next(" b , c") == std::vector<std::string>{"b", "c"});
  CHECK_THROWS_WITH(parse_next("b,,c"), "next is \"b,,c\"; expected node names between commas");
  const std::vector<MapEntry> entries = parse_map("det[result:data, boxes : boxes],other[result:x]");
  REQUIRE_EQ(entries.size(), 3u);
  CHECK_EQ(entries[1].source + "." + entries[1].from + "." + entries[1].to, "det.boxes.boxes");
  CHECK_EQ(entries[2].source, "other");
  for (const char* wrong : {"det", "det[result]", "[result:data]", "det[:data]", "det[result:]", "det[result:data"})
    CHECK_THROWS_AS(parse_map(wrong), Error);
  CHECK_THROWS_WITH(parse_map("a[r:x],b[r:x]"), "map is \"a[r:x],b[r:x]\"; the key \"x\" is set twice");
}
