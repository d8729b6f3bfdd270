// `priority` and `cancelled`: how a request's urgency and cancellation reach the requests that are made from it.
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// Answers with the request's priority.
void define_tells(const Traits& traits = {}) {
  define("TestTells", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(std::int64_t{request->priority}));
  }, {traits, {1, 8}, ""});
}

Dict urgent(Value data, Value priority) {
  Dict dict = request_of(std::move(data));
  dict.enter("priority", std::move(priority));
  return dict;
}

Value list_of_two() { return make_list({Value(1), Value(2)}); }

}  // namespace

TEST_CASE("a request has the priority that it names, 0 otherwise, on every thread") {
  for (const Traits& traits : {Traits{}, own_thread(), any_thread()}) {
    define_tells(traits);
    TestPipe pipe({{"backend", "S[TestTells]"}});
    CHECK_EQ(pipe.call(Value(1)).number(), 0);
    for (std::int64_t priority : {0, 1, 255}) CHECK_EQ(pipe.call(urgent(Value(1), Value(priority))).number(), priority);
    CHECK_EQ(pipe.call(urgent(Value(1), Value())).number(), 0);
    CHECK_EQ(pipe.submit(urgent(Value(1), Value(7))).wait().number(), 7);
  }
}

TEST_CASE("a wrong priority is an error of its request alone") {
  define_tells();
  TestPipe pipe({{"backend", "TestTells"}});
  std::vector<Dict> dicts;
  dicts.push_back(urgent(Value(1), Value(256)));
  dicts.push_back(urgent(Value(1), Value(3)));
  dicts.push_back(urgent(Value(1), Value(-1)));
  dicts.push_back(urgent(Value(1), text("high")));
  dicts.push_back(urgent(Value(1), Value(true)));
  const std::vector<CallResult> made = pipe.call_many(std::move(dicts));
  CHECK_EQ(made[0].message, "priority is 256; it must be 0 to 255");
  CHECK(made[0].code == ErrorCode::kRequest);
  CHECK_EQ(made[1].number(), 3);
  CHECK_EQ(made[2].message, "priority is -1; it must be 0 to 255");
  CHECK_EQ(made[3].message, "priority must be an int of 0 to 255, got str");
  CHECK(made[3].code == ErrorCode::kDataType);
  CHECK_EQ(made[4].message, "priority must be an int of 0 to 255, got bool");
}

TEST_CASE("the parts of a list have the priority of their request") {
  define_tells(own_thread());
  TestPipe pipe({{"backend", "FanOut[TestTells]"}});
  const CallResult made = pipe.call(urgent(list_of_two(), Value(9)));
  REQUIRE(made.good);
  const Value results = made.result();
  for (std::size_t i = 0; i < 2; ++i) CHECK_EQ(results.as_list().at(i).as_int(), 9);
}

TEST_CASE("the question of a filter has the priority of its request") {
  define("TestIsUrgent", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(request->priority == 4));
  });
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); });
  TestPipe pipe({{"backend", "Filter[TestIsUrgent,TestAddOne]"}});
  CHECK_EQ(pipe.call(urgent(Value(1), Value(4))).number(), 2);
  CHECK_EQ(pipe.call(urgent(Value(1), Value(5))).number(), 1);
}

TEST_CASE("a gathered batch is as urgent as its most urgent request and waits as long as its most patient") {
  std::vector<Nanoseconds> deadlines;
  std::vector<std::size_t> members;
  define("TestInfers", [&](Batch batch, const Params&) {
    CHECK_EQ(batch.size(), 1u);
    deadlines.push_back(batch[0].deadline);
    members.push_back(batch[0].merged_from.size());
    CHECK_EQ(batch[0].dict.find("priority")->as_int(), batch[0].priority);
    answer(batch[0], Value(std::int64_t{batch[0].priority}));
  }, {{}, {1, 8}, ""});
  TestPipe pipe({{"backend", "CatSplit[Identity,TestInfers,Identity]"}});
  std::vector<Dict> dicts;
  dicts.push_back(urgent(Value(1), Value(3)));
  dicts.push_back(urgent(Value(1), Value(200)));
  dicts[0].enter("timeout", text("1h"));
  for (const CallResult& made : pipe.call_many(std::move(dicts))) CHECK_EQ(made.number(), 200);
  const Nanoseconds before = now();
  Dict alone = urgent(Value(1), Value(3));
  alone.enter("timeout", text("1h"));
  CHECK_EQ(pipe.call(std::move(alone)).number(), 3);
  REQUIRE_EQ(deadlines.size(), 2u);
  CHECK_EQ(deadlines[0], kNever);
  CHECK_GE(deadlines[1], before);
  CHECK_LT(deadlines[1], kNever);
  CHECK_EQ(members, (std::vector<std::size_t>{2, 1}));
}

TEST_CASE("priority goes from node to node, and through a join") {
  define_tells(own_thread());
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 8}, ""});
  PipeConfig config;
  config.nodes = {{"start", {{"backend", "TestAddOne"}, {"next", "left, right, tells"}}},
                  {"left", {{"backend", "TestAddOne"}, {"next", "join"}}},
                  {"right", {{"backend", "TestAddOne"}, {"next", "join"}}},
                  {"tells", {{"backend", "TestTells"}}},
                  {"join", {{"backend", "TestTells"}, {"map", "left[result:data], right[result:other]"}}}};
  TestPipe pipe(config);
  const CallResult made = pipe.call(urgent(Value(1), Value(12)));
  REQUIRE(made.good);
  const Value results = made.result();  // of both last nodes
  CHECK_EQ(results.as_dict().entries().size(), 2u);
  for (const auto& [node, priority] : results.as_dict().entries()) CHECK_EQ(priority.as_int(), 12);
}

TEST_CASE("a copy that is posted elsewhere has the priority of its request, and so has what is sent to a node") {
  std::vector<std::int64_t> keys;
  Latch told;
  define("TestNotes", [&](Batch batch, const Params&) {
    const Value* key = batch[0].dict.find("priority");
    keys.push_back(key ? key->as_int() : -1);
    CHECK_EQ(batch[0].priority, key ? key->as_int() : 0);
    answer(batch[0], Value(1));
    told.add();
  }, {own_thread(), {1, 1}, ""});
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "Repost[node.z,reply]"}}},
                  {"b", {{"backend", "Send(z.queue)"}}},
                  {"z", {{"backend", "TestNotes"}}}};
  TestPipe pipe(config);
  std::size_t sent = 0;
  for (const char* node : {"a", "b"}) {
    for (const Value& priority : {Value(5), Value()}) {
      Dict dict = request_of(Value(1));
      if (!priority.is_none()) dict.enter("priority", priority);
      dict.enter("node_name", text(node));
      CHECK(pipe.call(std::move(dict)).good);
      told.wait_for(++sent);
    }
  }
  CHECK(pipe.close().empty());
  CHECK_EQ(keys, (std::vector<std::int64_t>{5, -1, 5, -1}));
}

TEST_CASE("a second try has the priority of the first") {
  define("TestFailsTogether", [](Batch batch, const Params&) {
    if (batch.size() > 1) throw Error(ErrorCode::kRequest, "not together");
    answer(batch[0], Value(std::int64_t{batch[0].priority}));
  }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestFailsTogether"}});
  std::vector<Dict> dicts;
  dicts.push_back(urgent(Value(1), Value(1)));
  dicts.push_back(urgent(Value(1), Value(2)));
  const std::vector<CallResult> made = pipe.call_many(std::move(dicts));
  CHECK_EQ(made[0].number(), 1);
  CHECK_EQ(made[1].number(), 2);
}

TEST_CASE("a request is cancelled when its caller has left, its time is up, or that of all it stands for") {
  const auto made = [] { return make_counted<Request>(); };
  const Ref<Request> left = made();
  CHECK(!left->cancelled());
  left->abandon();
  CHECK(left->cancelled());

  const Ref<Request> late = made();
  late->deadline = now() - 1;
  CHECK(late->cancelled());
  CHECK(!late->abandoned());
  late->deadline = after(3'600'000'000'000);
  CHECK(!late->cancelled());

  const Ref<Request> branch = late->branch({}, 0);
  const Ref<Request> twig = branch->branch({}, 0);
  CHECK(!twig->cancelled());
  late->abandon();
  CHECK(twig->cancelled());

  const Ref<Request> open = made();
  const Ref<Request> all = made();
  all->merged_from = {left, open};
  const Ref<Request> part = all->branch({}, 0);
  CHECK(!part->cancelled());
  open->deadline = now() - 1;
  CHECK(part->cancelled());
}
