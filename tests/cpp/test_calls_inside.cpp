// Calls that a backend makes while it runs: deadlock cycles are refused, depth costs little, deadlines are inherited.
#include <atomic>
#include <optional>

#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

TEST_CASE("a backend that calls its own busy node gets an error, not a deadlock") {
  std::shared_ptr<PipeState> state;
  std::atomic<int> depth{0};
  define("TestCallsItself", [&](Batch batch, const Params&) {
    for (Request* request : batch) {
      if (++depth > 3) return add(batch, 1);
      const Ref<Call> inner = state->run(requests_of({number(*request)}), kNever);
      if (inner->error(0)) throw Error(*inner->error(0));
      answer(*request, Value(outcome(*inner).number()));
    }
  }, {own_thread(), {}, ""});
  const auto call = [&](Keys keys) {
    keys.emplace_back("backend", "TestCallsItself");
    TestPipe pipe(std::move(keys));
    state = pipe->shared_from_this();
    depth = 0;
    const CallResult made = pipe.call(Value(1));
    pipe.close();
    state = nullptr;
    return made;
  };
  const CallResult single = call({});
  CHECK(single.code == ErrorCode::kReentrantCall);
  CHECK_EQ(
      single.message,
      "nested calls would deadlock: n -> n; every instance of these nodes waits for the next one; give a node more "
      "instances (instance_num), give the calls a timeout, or call in another order");
  CHECK(call({{"instance_num", 3}}).code == ErrorCode::kReentrantCall);
  CHECK(call({{"instance_num", 4}}).good);
  // The same where the entrypoint waits itself.
  PipeConfig config = one_node({{"backend", "TestCallsItself"}});
  config.entrypoint = "S[Forward[node.n],Identity]";
  TestPipe pipe(config);
  state = pipe->shared_from_this();
  depth = 0;
  CHECK(pipe.call(Value(1)).code == ErrorCode::kReentrantCall);
  state = nullptr;
}

TEST_CASE("two nodes that call each other get an error, not a deadlock, on any calling thread") {
  std::shared_ptr<PipeState> state;
  const auto calls = [&](const char* node) {
    return [&state, node](Batch batch, const Params&) {
      for (Request* request : batch) {
        Dict dict = request_of(Value(number(*request)));
        dict.enter("node_name", Value(node));
        std::vector<Dict> dicts;
        dicts.push_back(std::move(dict));
        const Ref<Call> inner = state->run(std::move(dicts), kNever);
        if (inner->error(0)) throw Error(*inner->error(0));
        answer(*request, Value(outcome(*inner).number()));
      }
    };
  };
  for (const Traits& traits : {own_thread(), any_thread()}) {
    define("TestCallsA", calls("a"), {traits, {}, ""});
    define("TestCallsB", calls("b"), {traits, {}, ""});
    for (const char* backend : {"TestCallsB", "S[Identity,TestCallsB]", "S[Identity,BackgroundThread[TestCallsB]]"}) {
      CAPTURE(backend);
      PipeConfig config;
      config.nodes = {{"a", {{"backend", backend}}}, {"b", {{"backend", "TestCallsA"}}}};
      TestPipe pipe(config);
      state = pipe->shared_from_this();
      Dict dict = request_of(Value(1));
      dict.enter("node_name", Value("a"));
      const CallResult made = pipe.call(std::move(dict));
      CHECK(made.code == ErrorCode::kReentrantCall);
      CHECK_EQ(made.message.substr(0, made.message.find("; every")), "nested calls would deadlock: a -> b -> a");
      state = nullptr;
    }
  }
}

TEST_CASE("calls of several requests may be made inside each other as deep as a program likes") {
  constexpr int kDeep = 14;
  std::shared_ptr<PipeState> state;
  Latch queued;
  define("TestCallsNext", [&](Batch batch, const Params&) {
    const std::int64_t next = number(batch[0]) + 1;
    std::vector<Dict> dicts = requests_of(std::vector<std::int64_t>(8, next));
    for (Dict& dict : dicts)
      dict.enter("node_name", Value(next < kDeep ? "n" + std::to_string(next) : std::string("last")));
    const Ref<Call> inner = state->start(std::move(dicts), kNever, InlinePolicy::kAllow);
    if (next == kDeep) queued.add();
    inner->wait();
    for (std::size_t i = 0; i < inner->size(); ++i) CHECK(outcome(*inner, i).good);
    add(batch, 0);
  }, {own_thread(), {1, 8}, ""});
  const Gated gated("TestGated", {own_thread(), {1, 8}, ""});
  PipeConfig config;
  for (int i = 0; i < kDeep; ++i) config.nodes.push_back({"n" + std::to_string(i), {{"backend", "TestCallsNext"}}});
  config.nodes.push_back({"last", {{"backend", "TestGated"}}});
  TestPipe pipe(config);
  state = pipe->shared_from_this();
  const auto to = [](const char* node) {
    Dict dict = request_of(Value(0));
    dict.enter("node_name", Value(node));
    return dict;
  };
  TestPipe::Pending busy = pipe.submit(to("last"));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending deep = pipe.submit(to("n0"));
  queued.wait_for(1);
  gated.gate->open();
  CHECK(deep.wait().good);
  CHECK(busy.wait().good);
  state = nullptr;
}

// Each of the threads that a pipe has for such calls waits for a backend, which waits for one more of them.
TEST_CASE("as many backends as a pipe has threads may wait for what they submit to it") {
  constexpr std::int64_t kThreads = 64;
  std::shared_ptr<PipeState> state;
  Latch all, submitted;
  define("TestSubmits", [&](Batch batch, const Params&) {
    if (number(batch[0]) == 100) return add(batch, 1);
    all.add();
    all.wait_for(kThreads);
    const Ref<Call> inner = state->start(requests_of({100}), kNever, InlinePolicy::kNonBlocking);
    submitted.add();
    inner->wait_inside();
    CHECK_EQ(outcome(*inner).number(), 101);
    add(batch, 0);
  }, {{ThreadMode::kConcurrent}, {1, 1}, ""});
  PipeConfig config = one_node({{"backend", "TestSubmits"}, {"instance_num", kThreads + 1}});
  config.entrypoint = "S[Forward[node.n],Identity]";
  for (const std::size_t round : {1, 2}) {
    TestPipe pipe(config);
    state = pipe->shared_from_this();
    std::vector<TestPipe::Pending> pending;
    for (std::int64_t i = 0; i < kThreads; ++i) pending.push_back(pipe.submit(i));
    submitted.wait_for(round * kThreads);
    if (round == 2) pipe.close();  // finishes what is open
    for (std::int64_t i = 0; i < kThreads; ++i) CHECK_EQ(pending[i].wait().number(), i);
    state = nullptr;
  }
}

TEST_CASE("what a backend asks of a pipe has no more time than those for whom it asks") {
  std::shared_ptr<PipeState> state;
  std::atomic<Nanoseconds> inner{0};
  define("TestAsks", [&](Batch batch, const Params&) {
    state->run(requests_of({1}), kNever);
    add(batch, 1);
  }, {own_thread(), {1, 2}, ""});
  define("TestTime", [&](Batch batch, const Params&) {
    inner = batch[0].deadline;
    add(batch, 1);
  });
  for (const char* backend : {"TestAsks", "S[Identity,BackgroundThread[TestAsks]]"}) {
    TestPipe outer({{"backend", backend}});
    TestPipe asked({{"backend", "TestTime"}});
    state = asked->shared_from_this();
    const auto told = [&](std::vector<std::optional<double>> deadlines) {
      std::vector<Dict> dicts = requests_of(std::vector<std::int64_t>(deadlines.size(), 1));
      for (std::size_t i = 0; i < deadlines.size(); ++i)
        if (deadlines[i]) dicts[i].enter("deadline", Value(*deadlines[i]));
      for (const CallResult& made : outer.call_many(std::move(dicts))) CHECK(made.good);
      return inner.load();
    };
    constexpr double kLate = 1e8, kLater = 2e8;  // seconds
    CHECK_EQ(told({kLate}), from_milliseconds(kLate * 1e3));
    CHECK_EQ(told({kLate, kLater}), from_milliseconds(kLater * 1e3));
    CHECK_EQ(told({kLate, std::nullopt}), kNever);
    CHECK_EQ(told({std::nullopt}), kNever);
    state = nullptr;
  }
}
