// A node's queue: which requests share a batch, when and on which thread they run, and which are refused.
#include <atomic>
#include <thread>

#include "pipes.hpp"
#include "schedule/policy_constants.hpp"
#include "sync/blocking.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr const char* kNoBatching = "List[InstancesRegister[Reflect[backend]], Register[InstanceDispatcher]]";

Dict sized(std::int64_t data, std::int64_t size) {
  Dict dict = request_of(Value(data));
  dict.enter("request_size", Value(size));
  return dict;
}

// A backend that begins by taking the global lock of a language.
struct Locked final : Backend {
  explicit Locked(std::shared_ptr<Gate> shared_gate) : gate(std::move(shared_gate)) {}
  bool acquires_gil() const noexcept override { return true; }
  const std::shared_ptr<Gate> gate;

 private:
  void forward_(Batch batch) override {
    gate->pass();
    add(batch, 100);
  }
};

std::atomic<int> taken_count{0}, let_go{0}, telling_count{0}, told_count{0};
thread_local int away = 0;

}  // namespace

TEST_CASE(
    "a language's lock is taken_count before callers are woken, if another batch waits, and released before the worker rests") {
  BlockingHooks hooks;
  hooks.preacquire = []() noexcept { ++taken_count; };
  hooks.release_preacquired = []() noexcept { ++let_go; };
  const BlockingHooks usual = set_blocking_hooks(hooks);
  const auto taken_and_let_go = [](const char* backend) {
    taken_count = let_go = 0;
    const auto gate = std::make_shared<Gate>();
    register_core();
    BackendClass cls;
    cls.name = "TestLocked";
    cls.create = [gate] { return std::make_shared<Locked>(gate); };
    Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
    {
      TestPipe pipe({{"backend", backend}});
      std::vector<TestPipe::Pending> pending;
      for (int i = 1; i <= 4; ++i) {
        pending.push_back(pipe.submit(Value(i)));
        if (i == 1) gate->arrived.wait_for(1);
      }
      gate->open();
      for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
    }
    return std::pair(taken_count.load(), let_go.load());
  };
  // Four batches; after the second and the third another waited when it began.
  CHECK((taken_and_let_go("TestLocked") == std::pair(2, 2)));
  CHECK((taken_and_let_go("S[TestLocked,Identity]") == std::pair(2, 2)));
  CHECK((taken_and_let_go("S[Identity,TestLocked]") == std::pair(0, 0)));
  set_blocking_hooks(usual);
}

TEST_CASE("the outcomes of a batch reach the callbacks of a language together") {
  BlockingHooks hooks;
  hooks.begin_completion_batch = [](CompletionStorage&) noexcept { ++telling_count; };
  hooks.end_completion_batch = [](CompletionStorage&) noexcept { ++told_count; };
  const BlockingHooks usual = set_blocking_hooks(hooks);
  {
    const Gated gated("TestGated");
    TestPipe pipe({{"backend", "TestGated"}, {"max", 8}});
    std::vector<TestPipe::Pending> pending;
    pending.push_back(pipe.submit(Value(1)));
    gated.gate->arrived.wait_for(1);
    for (int i = 2; i <= 4; ++i) pending.push_back(pipe.submit(Value(i)));
    gated.gate->open();
    for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
    CHECK_EQ(pipe.call_many(requests_of({5, 6})).size(), 2u);  // a caller that waits on a thread is only woken
    CHECK(gated.seen->batches() == Rows{{1}, {2, 3, 4}, {5, 6}});
  }
  CHECK_EQ(telling_count, 1);
  CHECK_EQ(told_count, 1);
  set_blocking_hooks(usual);
}

TEST_CASE("a language's lock is released for a completion callback that does work of its own") {
  struct Told final : CompletionSink {
    explicit Told(bool calls) : calls_(calls) {}
    Parker* complete(Request* const*, std::size_t) noexcept override {
      held = telling_count - told_count;
      return nullptr;
    }
    bool calls_back() const noexcept override { return calls_; }
    int held = -1;

   private:
    const bool calls_;
  };
  BlockingHooks hooks;
  hooks.begin_completion_batch = [](CompletionStorage&) noexcept { ++telling_count; };
  hooks.end_completion_batch = [](CompletionStorage&) noexcept { ++told_count; };
  const BlockingHooks usual = set_blocking_hooks(hooks);
  telling_count = told_count = 0;
  const Ref<Told> sinks[] = {make_counted<Told>(true), make_counted<Told>(true), make_counted<Told>(false),
                             make_counted<Told>(true)};
  std::vector<Ref<Request>> requests;
  std::vector<Request*> batch;
  for (const Ref<Told>& sink : sinks) {
    requests.push_back(make_counted<Request>());
    requests.back()->sink = Ref<CompletionSink>(sink.get());
    batch.push_back(requests.back().get());
  }
  complete_requests(Batch(batch));
  CHECK_EQ(sinks[0]->held, 1);
  CHECK_EQ(sinks[1]->held, 1);
  CHECK_EQ(sinks[2]->held, 0);
  CHECK_EQ(sinks[3]->held, 0);
  CHECK_EQ(telling_count, 1);
  CHECK_EQ(told_count, 1);
  set_blocking_hooks(usual);
}

TEST_CASE("an instance that becomes free takes what waits as one batch") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"max", 8}});
  std::vector<TestPipe::Pending> pending;
  pending.push_back(pipe.submit(Value(1)));
  gated.gate->arrived.wait_for(1);
  for (int i = 2; i <= 4; ++i) pending.push_back(pipe.submit(Value(i)));
  gated.gate->open();
  for (int i = 1; i <= 4; ++i) CHECK_EQ(pending[static_cast<std::size_t>(i - 1)].wait().number(), 100 + i);
  CHECK(gated.seen->batches() == Rows{{1}, {2, 3, 4}});
  CHECK_EQ(pipe->stats().at("n").batches.load(), 2u);
  CHECK_EQ(pipe->stats().at("n").submitted.load(), 4u);
}

TEST_CASE("a batch holds at most max items, and only one where the class declares no range") {
  const auto batches = [](Keys keys, const Range& range) {
    const Gated gated("TestGated", {own_thread(), range, ""});
    keys.emplace_back("backend", "TestGated");
    TestPipe pipe(std::move(keys));
    std::vector<TestPipe::Pending> pending;
    for (int i = 1; i <= 4; ++i) {
      pending.push_back(pipe.submit(Value(i)));
      if (i == 1) gated.gate->arrived.wait_for(1);
    }
    gated.gate->open();
    for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
    return gated.seen->batches();
  };
  CHECK(batches({{"max", 2}}, {}) == Rows{{1}, {2, 3}, {4}});
  CHECK(batches({}, {}) == Rows{{1}, {2}, {3}, {4}});
  CHECK(batches({}, {1, 3}) == Rows{{1}, {2, 3, 4}});
  CHECK(batches({{"max", 2}}, {1, 3}) == Rows{{1}, {2, 3}, {4}});
}

TEST_CASE("a class that takes any number of requests is batched without a max, up to the limit of auto") {
  const auto sizes = [](Keys keys) {
    const Gated gated("TestGated", {own_thread(), {1, Range::kAuto}, ""});
    keys.emplace_back("backend", "TestGated");
    keys.emplace_back("batching", "greedy");
    TestPipe pipe(std::move(keys));
    std::vector<TestPipe::Pending> pending;
    for (int i = 1; i <= 101; ++i) {
      pending.push_back(pipe.submit(Value(i)));
      if (i == 1) gated.gate->arrived.wait_for(1);
    }
    gated.gate->open();
    for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
    std::vector<std::size_t> each;
    for (const auto& batch : gated.seen->batches()) each.push_back(batch.size());
    return each;
  };
  const std::vector<std::size_t> limited{1, policy::kAutoMax, 100 - policy::kAutoMax};
  CHECK(sizes({}) == limited);
  CHECK(sizes({{"max", "auto"}}) == limited);
  CHECK(sizes({{"max", 80}}) == std::vector<std::size_t>{1, 80, 20});  // a number has no other limit
}

TEST_CASE("a request with more items than the limit of auto runs alone") {
  define("TestAuto", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, Range::kAuto}, ""});
  TestPipe pipe({{"backend", "TestAuto"}});
  CHECK_EQ(pipe.call(sized(5, 2 * policy::kAutoMax)).number(), 6);
}

TEST_CASE(
    "max = auto learns the batch size of a class that declares none, and is an error where it takes a fixed number") {
  define("TestAny", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {}, ""});
  TestPipe pipe({{"backend", "TestAny"}, {"max", "auto"}});
  CHECK_EQ(pipe.call(Value(5)).number(), 6);
  define("TestFour", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 4}, ""});
  try {
    TestPipe refused({{"backend", "TestFour"}, {"max", "auto"}});
    CHECK(false);
  } catch (const Error& error) {
    CHECK_EQ(error.message(),
             "max is \"auto\"; the backend of node \"n\" takes at most 4: remove max, or give a number");
  }
}

TEST_CASE("limits count items, not requests") {
  const Gated gated("TestGated", {own_thread(), {1, 4}, ""});
  TestPipe pipe({{"backend", "TestGated"}});
  std::vector<TestPipe::Pending> pending;
  pending.push_back(pipe.submit(Value(1)));
  gated.gate->arrived.wait_for(1);
  pending.push_back(pipe.submit(sized(2, 3)));
  pending.push_back(pipe.submit(sized(3, 2)));
  pending.push_back(pipe.submit(sized(4, 2)));
  gated.gate->open();
  for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
  CHECK(gated.seen->batches() == Rows{{1}, {2}, {3, 4}});
  CHECK_EQ(pipe.call(sized(5, 9)).message, "request_size is 9; node \"n\" takes at most 4");
}

TEST_CASE("without Batching a batch is what one call brought") {
  const Gated gated("TestGated", {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestGated"}, {"node_entrypoint", kNoBatching}});
  std::vector<TestPipe::Pending> pending;
  pending.push_back(pipe.submit(Value(1)));
  gated.gate->arrived.wait_for(1);
  pending.push_back(pipe.submit(Value(2)));
  pending.push_back(pipe.submit(Value(3)));
  pending.push_back(pipe.submit_many(requests_of({4, 5})));
  gated.gate->open();
  for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
  CHECK(gated.seen->batches() == Rows{{1}, {2}, {3}, {4, 5}});
}

TEST_CASE("a call longer than max is cut, and all idle instances work on it") {
  const Gated gated("TestGated", {own_thread(), {1, 2}, ""});
  TestPipe pipe({{"backend", "TestGated"}, {"instance_num", 2}});
  TestPipe::Pending pending = pipe.submit_many(requests_of({1, 2, 3, 4, 5}));
  gated.gate->arrived.wait_for(2);
  gated.gate->open();
  pending.done->wait_for(1);
  std::size_t largest = 0, requests = 0;
  for (const auto& row : gated.seen->batches()) {
    largest = std::max(largest, row.size());
    requests += row.size();
  }
  CHECK_EQ(largest, 2u);
  CHECK_EQ(requests, 5u);
  for (std::size_t i = 0; i < 5; ++i) CHECK_EQ(outcome(*pending.call, i).number(), 101 + static_cast<int>(i));
}

TEST_CASE("a lone request has no queue delay") {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestAddOne"}, {"batching_timeout", "3600s"}});
  CHECK_EQ(pipe.call(Value(1)).number(), 2);
  CHECK_EQ(pipe.submit(Value(2)).wait().number(), 3);
}

TEST_CASE("requests in a queue delay start when the batch is full or the oldest has waited long enough") {
  const Gated gated("TestGated", {own_thread(), {1, 3}, ""});
  gated.gate->open();
  {
    TestPipe pipe({{"backend", "TestGated"}, {"batching_timeout", "3600s"}});
    TestPipe::Pending two = pipe.submit_many(requests_of({1, 2}));
    TestPipe::Pending third = pipe.submit(Value(3));
    CHECK(two.wait().good);
    CHECK_EQ(third.wait().number(), 103);
    CHECK(gated.seen->batches() == Rows{{1, 2, 3}});
  }
  TestPipe pipe({{"backend", "TestGated"}, {"batching_timeout", "1ms"}});
  TestPipe::Pending two = pipe.submit_many(requests_of({4, 5}));
  CHECK(two.wait().good);
  CHECK(gated.seen->batches() == Rows{{1, 2, 3}, {4, 5}});
}

TEST_CASE("fewer items than min fail when their time is up, and are never passed on") {
  const Gated gated("TestGated", {own_thread(), {2, 2}, ""});
  gated.gate->open();
  TestPipe pipe({{"backend", "TestGated"}, {"batching_timeout", "1ms"}});
  const CallResult alone = pipe.call(Value(1));
  CHECK(alone.code == ErrorCode::kRequest);
  CHECK_EQ(alone.message, "node \"n\" takes at least 2 items; only 1 arrived within batching_timeout");
  CHECK(pipe.submit_many(requests_of({2, 3})).wait().good);
  CHECK(gated.seen->batches() == Rows{{2, 3}});
}

TEST_CASE("a batch below min waits for further requests, however large batching_timeout is") {
  const Gated gated("TestGated", {own_thread(), {2, 2}, ""});
  gated.gate->open();
  for (const double milliseconds : {1e12, 9.2e12, 1e13, 1e300}) {
    TestPipe pipe({{"backend", "TestGated"}, {"batching_timeout", milliseconds}});
    TestPipe::Pending first = pipe.submit(Value(1));
    CHECK(pipe.submit(Value(2)).wait().good);
    CHECK(first.wait().good);
  }
}

TEST_CASE("a full queue rejects where on_full says so") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"max_queue_size", 2}, {"on_full", "reject"}});
  std::vector<TestPipe::Pending> pending;
  pending.push_back(pipe.submit(Value(1)));
  gated.gate->arrived.wait_for(1);
  pending.push_back(pipe.submit(Value(2)));
  pending.push_back(pipe.submit(Value(3)));
  const CallResult refused = pipe.submit(Value(4)).wait();
  CHECK(refused.code == ErrorCode::kQueueFull);
  CHECK_EQ(refused.message, "node \"n\" has 2 requests queued (max_queue_size = 2)");
  gated.gate->open();
  for (TestPipe::Pending& one : pending) CHECK(one.wait().good);
}

TEST_CASE("what idle instances are about to take has a place beside the queue") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"instance_num", 2}, {"max_queue_size", 3}, {"on_full", "reject"}});
  TestPipe::Pending burst = pipe.submit_many(requests_of({1, 2, 3, 4, 5, 6}));
  gated.gate->arrived.wait_for(2);
  gated.gate->open();
  burst.wait();
  for (std::size_t i = 0; i < 5; ++i) CHECK_EQ(outcome(*burst.call, i).number(), 101 + static_cast<int>(i));
  CHECK_EQ(outcome(*burst.call, 5).message, "node \"n\" has 3 requests queued (max_queue_size = 3)");
}

TEST_CASE("a full queue blocks the caller until there is room") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"max_queue_size", 1}});
  pipe.submit(Value(0));
  gated.gate->arrived.wait_for(1);
  std::vector<TestPipe::Pending> pending(20);
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < pending.size(); ++i)
    callers.emplace_back([&, i] { pending[i] = pipe.submit(Value(static_cast<int>(i))); });
  gated.gate->open();
  for (std::thread& caller : callers) caller.join();
  for (std::size_t i = 0; i < pending.size(); ++i) CHECK_EQ(pending[i].wait().number(), 100 + static_cast<int>(i));
}

TEST_CASE("a full queue has no queue delay") {
  const Gated gated("TestGated", {own_thread(), {1, 8}, ""});
  gated.gate->open();
  TestPipe pipe({{"backend", "TestGated"}, {"max_queue_size", 2}, {"batching_timeout", "3600s"}});
  Latch done;
  std::thread caller([&] {
    // The last is alone, so it need not wait either.
    for (const CallResult& one : pipe.call_many(requests_of({1, 2, 3, 4, 5}))) CHECK(one.good);
    done.add();
  });
  done.wait_for(1);
  caller.join();
}

TEST_CASE("abandoned requests take no capacity of the queue") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"max_queue_size", 1}, {"on_full", "reject"}});
  TestPipe::Pending running = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending late = pipe.submit(request_of(Value(2)), 1);
  CHECK(late.wait().code == ErrorCode::kDeadlineExceeded);
  TestPipe::Pending next = pipe.submit(Value(3));
  gated.gate->open();
  CHECK_EQ(next.wait().number(), 103);
  CHECK(running.wait().good);
  CHECK(gated.seen->batches() == Rows{{1}, {3}});
}

TEST_CASE("the caller's thread runs what its class allows, if nothing waits") {
  std::thread::id ran_on;
  const auto note = [&](Batch batch, const Params&) {
    ran_on = std::this_thread::get_id();
    add(batch, 1);
  };
  define("TestAny", note, {any_thread(), {}, ""});
  define("TestQuick", note, {Traits{ThreadMode::kConcurrent, true, true}, {}, ""});
  define("TestOwn", note, {own_thread(), {}, ""});
  const std::thread::id here = std::this_thread::get_id();
  const auto runs_here = [&](const char* backend, bool submitted, Nanoseconds timeout) {
    TestPipe pipe({{"backend", backend}});
    if (submitted) {
      CHECK(pipe.submit(request_of(Value(1)), timeout).wait().good);
    } else {
      const Ref<Call> call = pipe->start(requests_of({1}), timeout, InlinePolicy::kAllow);
      call->wait();
      CHECK(outcome(*call).good);
    }
    CHECK_EQ(pipe->stats().at("n").inline_batches.load(), ran_on == here ? 1u : 0u);
    return ran_on == here;
  };
  constexpr Nanoseconds kHour = 3'600'000'000'000;
  CHECK(runs_here("TestAny", false, kNever));
  CHECK_FALSE(runs_here("TestAny", false, kHour));  // a caller with a deadline must be able to leave
  CHECK_FALSE(runs_here("TestAny", true, kNever));
  CHECK(runs_here("TestQuick", false, kNever));
  CHECK(runs_here("TestQuick", true, kNever));
  CHECK_FALSE(runs_here("TestOwn", false, kNever));
}

TEST_CASE("hooks run on each request before it is gathered, and on the gathered batch") {
  const auto first = std::make_shared<Seen>(), second = std::make_shared<Seen>();
  define("TestHook", [=](Batch batch, const Params&) {
    first->add(batch);
    add(batch, 10);
  });
  define("TestBatchHook", [=](Batch batch, const Params&) { second->add(batch); });  // leaves `data` as it is
  const Gated gated("TestGated", {own_thread(), {1, 8}, ""});
  gated.gate->open();
  TestPipe pipe({{"backend", "TestGated"},
                 {"node_entrypoint",
                  "List[InstancesRegister[Reflect[backend]], Register[InstanceDispatcher[TestHook,TestBatchHook]]]"}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({1, 2}));
  CHECK_EQ(outcomes[0].number(), 111);
  CHECK_EQ(outcomes[1].number(), 112);
  CHECK(first->batches() == Rows{{1}, {2}});
  CHECK(second->batches() == Rows{{11, 12}});
  CHECK(gated.seen->batches() == Rows{{11, 12}});
}

TEST_CASE("a hook runs without the lock of a language that its caller holds") {
  BlockingHooks hooks;
  hooks.leave = []() noexcept -> void* { return ++away, nullptr; };
  hooks.enter = [](void*) noexcept { --away; };
  const BlockingHooks usual = set_blocking_hooks(hooks);
  const auto seen = std::make_shared<std::vector<int>>();
  define("TestHook", [=](Batch, const Params&) { seen->push_back(away); });
  const Gated gated("TestGated");
  gated.gate->open();
  {
    TestPipe pipe(
        {{"backend", "TestGated"},
         {"node_entrypoint", "List[InstancesRegister[Reflect[backend]], Register[InstanceDispatcher[TestHook]]]"}});
    CHECK(pipe.submit(Value(1)).wait().good);
  }
  CHECK((*seen == std::vector<int>{1}));
  set_blocking_hooks(usual);
}

TEST_CASE("the range of a node is checked when the pipe is built") {
  define("TestRange", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {2, 4}, ""});
  const auto refusal = [](Keys keys) {
    keys.emplace_back("backend", "TestRange");
    try {
      TestPipe pipe(std::move(keys));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kConfig);
      return error.message();
    }
    return std::string("none");
  };
  CHECK_EQ(refusal({{"max", 5}}), "max is 5; the backend of node \"n\" takes at most 4");
  CHECK_EQ(refusal({{"max", 1}}), "min is 2, above max, which is 1");
  CHECK_EQ(refusal({{"max", 3}}), "none");
}
