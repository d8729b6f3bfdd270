// Every request gets exactly one outcome: deadlines, callers who leave, and pipes that close while they work.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <limits>
#include <thread>

#include "backend/thread_modes.hpp"
#include "pipes.hpp"
#include "sync/blocking.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr Nanoseconds kHour = 3'600'000'000'000;

// Counts how many of it exist.
struct Alive {
  explicit Alive(std::atomic<int>& counter) : count(counter) { ++count; }
  Alive(const Alive& other) : count(other.count) { ++count; }
  ~Alive() { --count; }
  Alive& operator=(const Alive&) = delete;
  std::atomic<int>& count;
};

struct Tracked final : OpaqueObject {
  explicit Tracked(std::atomic<int>& counter) : OpaqueObject("test"), alive(counter) {}
  Alive alive;
};

// How often the user still wants his thread back. A caller who waits is asked every 50 ms or so.
std::atomic<int> interrupts{0};
const std::thread::id main_thread = std::this_thread::get_id();
const bool hooks_set = [] {
  BlockingHooks hooks;
  hooks.may_be_interrupted = []() noexcept { return std::this_thread::get_id() == main_thread; };
  hooks.check_interrupt = [] {
    if (std::this_thread::get_id() != main_thread || interrupts == 0) return;
    --interrupts;
    throw Error(ErrorCode::kCancelled, "interrupted");
  };
  set_blocking_hooks(hooks);
  return true;
}();

}  // namespace

TEST_CASE("a deadline comes in time although the instance is busy, and the node goes on") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}});
  pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  const Ref<Call> waited = pipe->start(requests_of({2}), 1, InlinePolicy::kAllow);
  waited->wait();
  CHECK(outcome(*waited).code == ErrorCode::kDeadlineExceeded);
  CHECK_EQ(outcome(*waited).message.rfind("the request timed out: its limit of 0ms passed at node \"n\" (waited ", 0),
           0u);
  CHECK(pipe.submit(request_of(Value(2)), 1).wait().code == ErrorCode::kDeadlineExceeded);
  TestPipe::Pending last = pipe.submit(request_of(Value(3)), kHour);
  gated.gate->open();
  CHECK_EQ(last.wait().number(), 103);
  for (const auto& row : gated.seen->batches()) CHECK_NE(row[0], 2);  // its caller no longer waited
}

TEST_CASE("time limits of the call, the node and the request: the earliest counts") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"timeout", "1ms"}});
  CHECK(pipe.submit(Value(1)).wait().code == ErrorCode::kDeadlineExceeded);
  TestPipe patient({{"backend", "TestGated"}, {"timeout", "1h"}});
  for (const auto& [key, value] : Keys{
           {"timeout", Value("1ms")}, {"timeout", Value(0)}, {"deadline", Value(0.001)}, {"deadline", Value(-1e300)}}) {
    Dict dict = request_of(Value(1));
    dict.enter(key, value);
    CHECK(patient.submit(std::move(dict)).wait().code == ErrorCode::kDeadlineExceeded);
  }
  const auto refused = [&](const char* key, Value value) {
    Dict dict = request_of(Value(1));
    dict.enter(key, std::move(value));
    const CallResult made = patient.submit(std::move(dict)).wait();
    CHECK(made.code == ErrorCode::kDataType);
    return made.message;
  };
  CHECK_EQ(refused("deadline", Value("soon")), "timeout or deadline of the request: expected float, got str");
  CHECK_EQ(refused("deadline", Value(std::numeric_limits<double>::quiet_NaN())),
           "timeout or deadline of the request: expected a number, got nan");
  CHECK_EQ(refused("timeout", Value("soon")),
           "timeout or deadline of the request: parameter \"timeout\" of the request takes a duration with a unit, as "
           "\"5ms\", \"2s\", \"1min\" or \"1h\", got \"soon\"");
  CHECK_EQ(refused("timeout", Value(-1)),
           "timeout or deadline of the request: expected seconds, or text with a unit as \"50ms\", got -1");
  gated.gate->open();
}

TEST_CASE("in one call each request has its own deadline") {
  const Gated gated("TestGated", {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestGated"}});
  std::vector<Dict> dicts = requests_of({1, 2, 3});
  dicts[1].enter("timeout", Value("1ms"));
  dicts[2].enter("timeout", Value("2ms"));
  TestPipe::Pending pending = pipe.submit_many(std::move(dicts));
  pipe.submit(request_of(Value(4)), 5'000'000).wait();  // the timer has passed both
  gated.gate->open();
  pending.done->wait_for(1);
  CHECK_EQ(outcome(*pending.call, 0).number(), 101);
  CHECK(outcome(*pending.call, 1).code == ErrorCode::kDeadlineExceeded);
  CHECK(outcome(*pending.call, 2).code == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("a deadline that comes before all that the timer waits for is kept in time") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}});
  TestPipe::Pending running = pipe.submit(request_of(Value(1)), kHour);
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending later = pipe.submit(request_of(Value(2)), 2 * kHour);
  CHECK(pipe.submit(request_of(Value(3)), 1'000'000).wait().code == ErrorCode::kDeadlineExceeded);
  gated.gate->open();
  CHECK_EQ(running.wait().number(), 101);
  CHECK_EQ(later.wait().number(), 102);
}

TEST_CASE("a caller who leaves has an outcome at once, and what was waiting is not run") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}});
  TestPipe::Pending running = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending waiting = pipe.submit(Value(2));
  for (TestPipe::Pending* one : {&running, &waiting}) {
    one->call->give_up(Error(ErrorCode::kCancelled, "left"));
    CHECK(one->wait().code == ErrorCode::kCancelled);
    one->call->give_up(Error(ErrorCode::kCancelled, "left again"));
  }
  TestPipe::Pending last = pipe.submit(Value(3));
  gated.gate->open();
  CHECK_EQ(last.wait().number(), 103);
  CHECK(gated.seen->batches() == Rows{{1}, {3}});
  CHECK_EQ(running.done->count(), 1u);
  CHECK_EQ(outcome(*running.call).message, "left");
}

TEST_CASE("a closing pipe finishes what is open and takes nothing more") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}});
  std::vector<TestPipe::Pending> pending;
  for (int i = 0; i < 5; ++i) pending.push_back(pipe.submit(Value(i)));
  gated.gate->arrived.wait_for(1);
  Latch closed;
  std::thread closer([&] {
    CHECK(pipe.close().empty());
    closed.add();
  });
  while (!pipe->closed()) std::this_thread::yield();
  CHECK_THROWS_WITH_AS(pipe.submit(Value(9)), "the pipe is closed", Error);
  gated.gate->open();
  closed.wait_for(1);
  closer.join();
  for (int i = 0; i < 5; ++i) CHECK_EQ(pending[static_cast<std::size_t>(i)].wait().number(), 100 + i);
  CHECK(pipe.close().empty());  // once more does no harm
}

TEST_CASE("a second close returns when the pipe is closed, not before") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}});
  TestPipe::Pending pending = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  std::thread first([&] { pipe.close(); });
  while (!pipe->closed()) std::this_thread::yield();
  std::atomic<bool> opened{false};
  std::thread second([&] {
    pipe.close();
    CHECK(opened.load());
    CHECK_EQ(pending.done->count(), 1u);
  });
  opened = true;
  gated.gate->open();
  first.join();
  second.join();
}

TEST_CASE("a backend that does not come back is abandoned by name, and what waits fails") {
  const Gated gated("TestGated");
  register_core();
  const std::shared_ptr<PipeState> state = PipeState::build(one_node({{"backend", "TestGated"}}));
  Latch done;
  const auto submit = [&](std::int64_t number) {
    return state->start(requests_of({number}), kNever, InlinePolicy::kNonBlocking, [&](Call&) { done.add(); });
  };
  const Ref<Call> running = submit(1);
  gated.gate->arrived.wait_for(1);
  const Ref<Call> waiting = submit(2);
  CHECK(state->close(0) == std::vector<std::string>{"TestGated of node \"n\""});
  CHECK_EQ(done.count(), 2u);
  for (const Ref<Call>& call : {running, waiting}) {
    CHECK(outcome(*call).code == ErrorCode::kPipeClosed);
    CHECK_EQ(outcome(*call).message, "the pipe was closed");
  }
  gated.gate->open();  // its late result is discarded
  CHECK(gated.seen->batches() == Rows{{1}});
}

TEST_CASE("closing without a grace period abandons no thread that has finished") {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {}, ""});
  for (int i = 0; i < 200; ++i) {
    TestPipe pipe({{"backend", "TestAddOne"}, {"instance_num", 2}});
    CHECK_EQ(pipe.call(Value(i)).number(), i + 1);
    CHECK(pipe.close(0).empty());
  }
}

TEST_CASE("a pipe may be closed by the callback of its own request") {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); },
         {Traits{ThreadMode::kConcurrent, true, true}, {}, ""});
  TestPipe pipe({{"backend", "TestAddOne"}});
  Latch done;
  const auto submit = [&] {
    pipe->start(requests_of({1}), kNever, InlinePolicy::kNonBlocking, [&](Call&) {
      CHECK(pipe.close().empty());
      done.add();
    });
  };
  submit();
  done.wait_for(1);
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {}, ""});
  for (Keys keys : {Keys{{"backend", "TestAddOne"}}, Keys{{"backend", "TestAddOne"}, {"timeout", "1h"}}}) {
    TestPipe own(std::move(keys));
    own->start(requests_of({1}), kNever, InlinePolicy::kNonBlocking, [&](Call&) {
      CHECK(own.close().empty());
      done.add();
    });
    CHECK(own.close().empty());
  }
  done.wait_for(3);
}

TEST_CASE("a pipe may be closed again by the callback of a request that its close fails") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}});
  Latch done;
  pipe->start(requests_of({1}), kNever, InlinePolicy::kNonBlocking, [&](Call&) {
    gated.gate->open();
    CHECK(pipe.close(kNever).empty());
    done.add();
  });
  gated.gate->arrived.wait_for(1);
  CHECK(pipe.close(0).empty());
  CHECK_EQ(done.count(), 1u);
}

TEST_CASE("two threads may close a pipe, one of them a worker of another pipe") {
  std::shared_ptr<PipeState> closed;
  Latch started;
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {}, ""});
  define("TestCloses", [&](Batch batch, const Params&) {
    started.add();
    closed->close(kNever);
    add(batch, 1);
  }, {own_thread(), {}, ""});
  TestPipe closes({{"backend", "TestCloses"}});
  for (std::size_t round = 1; round <= 200; ++round) {
    TestPipe pipe({{"backend", "TestAddOne"}, {"instance_num", 2}, {"timeout", "1h"}});
    closed = pipe->shared_from_this();
    CHECK(pipe.submit(Value(1)).wait().good);
    TestPipe::Pending pending = closes.submit(Value(1));
    started.wait_for(round);
    CHECK(pipe.close().empty());
    CHECK(pending.wait().good);
    closed = nullptr;
  }
}

TEST_CASE("an interrupted close returns while the backend runs, and the pipe is closed in the background") {
  for (const char* entrypoint : {"", "S[Forward[node.n],Identity]"}) {
    for (const Nanoseconds timeout :
         {kNever, Nanoseconds{1}}) {  // the backend runs with its caller, and after it has left
      CAPTURE(entrypoint);
      CAPTURE(timeout);
      const Gated gated("TestGated");
      PipeConfig config = one_node({{"backend", "TestGated"}});
      if (*entrypoint) config.entrypoint = entrypoint;
      TestPipe pipe(config);
      TestPipe::Pending pending = pipe.submit(request_of(Value(1)));
      gated.gate->arrived.wait_for(1);
      TestPipe::Pending timed = pipe.submit(request_of(Value(2)), timeout);
      if (timeout != kNever) {
        CHECK(timed.wait().code == ErrorCode::kDeadlineExceeded);
        pending.call->give_up(Error(ErrorCode::kCancelled, "left"));
      }
      interrupts = 1;
      CHECK(pipe.close(kNever).empty());
      const std::optional<Interrupted> interrupted = take_stored_interrupt();
      REQUIRE(interrupted.has_value());
      CHECK_EQ(interrupted->message(), "interrupted");
      CHECK(interrupted->notes() == std::vector<std::string>{"close of TestGated of node \"n\", which still runs"});
      CHECK(pending.wait().code == (timeout == kNever ? ErrorCode::kPipeClosed : ErrorCode::kCancelled));
      timed.wait();
      gated.gate->open();
      CHECK(pipe.close(kNever).empty());  // returns when the pipe is closed
    }
  }
}

TEST_CASE("an interrupted wait for the end of a worker may be repeated") {
  Gate gate;
  Worker worker("test");
  worker.post([&] { gate.pass(); });
  interrupts = 1;
  CHECK_THROWS_WITH_AS(worker.stop(kNever), "interrupted", Error);
  gate.open();
  CHECK(worker.stop(kNever));
}

TEST_CASE("a closing pipe runs what waits for further requests, and fails what is below min") {
  const Gated pairs("TestPairs", {own_thread(), {2, 8}, ""});
  pairs.gate->open();
  TestPipe pipe({{"backend", "TestPairs"}, {"batching_timeout", "1h"}});
  std::vector<TestPipe::Pending> pending;
  pending.push_back(pipe.submit_many(requests_of({1, 2, 3})));
  CHECK(pipe.close(kNever).empty());
  CHECK(pending[0].wait().good);
  CHECK(pairs.seen->batches() == Rows{{1, 2, 3}});

  TestPipe one({{"backend", "TestPairs"}, {"batching_timeout", "1h"}});
  TestPipe::Pending alone = one.submit(Value(1));
  CHECK(one.close(kNever).empty());
  const CallResult failed = alone.wait();
  CHECK(failed.code == ErrorCode::kPipeClosed);
  CHECK_EQ(failed.message, "node \"n\" takes at least 2 items; only 1 arrived before the pipe was closed");
}

TEST_CASE("a closing pipe fails no request below min for which others are on their way") {
  const Gated first("TestFirst", {own_thread(), {1, 1}, ""});
  define("TestPairs", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {2, 2}, ""});
  define("TestFours", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {4, 4}, ""});
  PipeConfig config;
  config.nodes.push_back({"a", {{"backend", "TestFirst"}, {"next", "b"}}});
  config.nodes.push_back({"b", {{"backend", "TestPairs"}, {"batching_timeout", "1h"}, {"next", "c"}}});
  config.nodes.push_back({"c", {{"backend", "TestFours"}, {"batching_timeout", "1h"}}});
  TestPipe pipe(config);
  std::vector<TestPipe::Pending> pending;
  for (int i = 0; i < 9; ++i) pending.push_back(pipe.submit(Value(i)));
  first.gate->arrived.wait_for(1);
  std::thread closer([&] { CHECK(pipe.close(kNever).empty()); });
  while (!pipe->closed()) std::this_thread::yield();
  first.gate->open();
  closer.join();
  for (int i = 0; i < 8; ++i) CHECK_EQ(pending[static_cast<std::size_t>(i)].wait().number(), 102 + i);
  CHECK_EQ(pending[8].wait().message, "node \"b\" takes at least 2 items; only 1 arrived before the pipe was closed");
}

TEST_CASE("a request and its call are freed when both are done, with any deadline") {
  std::atomic<int> requests{0}, callbacks{0};
  define("TestPass", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(1));
  }, {own_thread(), {}, ""});
  TestPipe pipe({{"backend", "TestPass"}});
  {
    TestPipe::Pending pending = pipe.submit(Value::adopt(new Tracked(requests)));
    CHECK(pending.wait().good);
  }
  for (Nanoseconds timeout : {kNever, kHour}) {
    const auto done = std::make_shared<Latch>();
    std::vector<Dict> dicts;
    dicts.push_back(request_of(Value::adopt(new Tracked(requests))));
    Ref<Call> call = pipe->start(std::move(dicts), timeout, InlinePolicy::kNonBlocking,
                                 [done, alive = Alive(callbacks)](Call&) { done->add(); });
    done->wait_for(1);
    pipe.call(Value(1));            // the instance is through with the one before
    CHECK_EQ(callbacks.load(), 0);  // the call is still there, its callback is not
    CHECK(outcome(*call).good);
  }
  pipe.close();
  CHECK_EQ(requests.load(), 0);
}

TEST_CASE("names and backends of a closed pipe are gone") {
  std::atomic<int> alive{0};
  const auto count = std::make_shared<Alive>(alive);
  define("TestCounted", [count = *count](Batch batch, const Params&) { add(batch, 1); });
  const int defined = alive;
  TestPipe pipe({{"backend", "TestCounted"}, {"instance_num", 3}});
  CHECK_EQ(alive.load(), defined + 3);
  pipe.close();
  CHECK_EQ(alive.load(), defined);
}

TEST_CASE("an entrypoint that waits itself lets its caller leave") {
  const Gated gated("TestGated");
  PipeConfig config = one_node({{"backend", "TestGated"}});
  config.entrypoint = "S[Forward[node.n],Identity]";
  TestPipe pipe(config);
  TestPipe::Pending submitted = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  REQUIRE(hooks_set);
  interrupts = 1;
  CHECK_THROWS_WITH_AS(pipe.call(Value(2)), "interrupted", Error);
  gated.gate->open();
  CHECK_EQ(submitted.wait().number(), 101);
}

TEST_CASE("a caller who is interrupted while a full queue holds him up leaves with all his requests") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"max_queue_size", 1}});
  TestPipe::Pending running = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending waiting = pipe.submit(Value(2));
  interrupts = 1;
  int told = 0;
  const auto tell = [&](Call& call) {
    for (std::size_t i = 0; i < 3; ++i) CHECK_EQ(outcome(call, i).message, "interrupted");
    ++told;
  };
  CHECK_THROWS_WITH_AS(pipe->start(requests_of({3, 4, 5}), kNever, InlinePolicy::kAllow, tell), "interrupted",
                       Interrupted);
  CHECK_EQ(told, 1);
  gated.gate->open();
  CHECK(running.wait().good);
  CHECK(waiting.wait().good);
  CHECK(gated.seen->batches() == Rows{{1}, {2}});
}

namespace {

// The second of its instances is interrupted in its init, and waits at a gate.
class HeldUp final : public Backend {
 public:
  HeldUp(std::atomic<int>& alive, Gate& gate) : alive_(alive), gate_(gate) {}

 private:
  void init_(Init& init) override {
    if (init.instance() != 1) return;
    interrupts = 1;
    gate_.pass();
    CHECK(init.options().contains(kInitEvent));
    CHECK_FALSE(init.label().empty());
  }
  void forward_(Batch) override {}

  const Alive alive_;
  Gate& gate_;
};

// A backend whose init waits at a gate.
class Blocks final : public Backend {
 public:
  Blocks(std::atomic<int>& alive, Gate& gate) : alive_(alive), gate_(gate) {}

 private:
  void init_(Init&) override { gate_.pass(); }
  void forward_(Batch) override {}

  Alive alive_;
  Gate& gate_;
};

}  // namespace

TEST_CASE("an interrupted caller of a pipe's creation leaves; the init goes on, and its instance is closed") {
  std::atomic<int> alive{0};
  Gate gate;
  BackendClass cls;
  cls.name = "TestHeldUp";
  cls.traits = own_thread();
  cls.create = [&] { return std::make_shared<HeldUp>(alive, gate); };
  register_core();
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
  const PipeConfig config = one_node({{"backend", "S[Identity,TestHeldUp]"}, {"instance_num", 3}});
  CHECK_THROWS_WITH_AS(PipeState::build(config), "interrupted", Error);
  CHECK_EQ(alive, 2);
  gate.open();
  REQUIRE(wait_for_detached_inits(after(std::chrono::nanoseconds(kPatience).count())));
  CHECK_EQ(alive, 0);
}

TEST_CASE("an init that exceeds init_timeout is left; it goes on, and its instance is closed") {
  std::atomic<int> alive{0};
  register_core();
  for (const Traits& traits : {own_thread(), any_thread()}) {
    Gate gate;
    BackendClass cls;
    cls.name = "TestBlocks";
    cls.traits = traits;
    cls.create = [&] { return std::make_shared<Blocks>(alive, gate); };
    Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
    const PipeConfig config =
        one_node({{"backend", "S[Identity,TestBlocks]"}, {"instance_num", 3}, {"init_timeout", "20ms"}});
    try {
      PipeState::build(config);
      FAIL("the pipe was built");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kDeadlineExceeded);
      CHECK_EQ(error.message(), "the init of node \"n\" took longer than init_timeout = 20ms");
      const std::vector<std::string> notes = {"init of S, which continues and is closed when it ends", "node \"n\""};
      CHECK_EQ(error.notes(), notes);
    }
    gate.arrived.wait_for(1);  // its thread may start after the limit
    CHECK_EQ(alive, 1);
    gate.open();
    REQUIRE(wait_for_detached_inits(after(std::chrono::nanoseconds(kPatience).count())));
    CHECK_EQ(alive, 0);
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define HAMI_SANITIZED
#endif
#endif
#else
#define HAMI_SANITIZED
#endif

// Sanitizers start threads in their own way.
#ifndef HAMI_SANITIZED
TEST_CASE("where the system gives no thread, requests fail and the pipe stays usable") {
  define("TestAny", [](Batch batch, const Params&) { add(batch, 1); }, {any_thread(), {}, ""});
  TestPipe pipe({{"backend", "TestAny"}});
  // Of glibc 2.18, while the tests may be linked for 2.17.
  using Defaults = int (*)(pthread_attr_t*);
  const auto get_defaults = reinterpret_cast<Defaults>(dlsym(RTLD_DEFAULT, "pthread_getattr_default_np"));
  const auto set_defaults = reinterpret_cast<Defaults>(dlsym(RTLD_DEFAULT, "pthread_setattr_default_np"));
  REQUIRE((get_defaults && set_defaults));
  pthread_attr_t before, huge;
  REQUIRE_EQ(get_defaults(&before), 0);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
  REQUIRE_EQ(set_defaults(&huge), 0);
  const CallResult made = pipe.submit(Value(1)).wait();
  const CallResult timed = pipe.submit(request_of(Value(1)), kHour).wait();
  REQUIRE_EQ(set_defaults(&before), 0);
  CHECK(made.code == ErrorCode::kOutOfMemory);
  CHECK_EQ(
      made.message,
      "cannot start a thread: no memory for its stack of 1099511627776 kB; free memory, raise the limit (ulimit -v), "
      "or make stacks smaller (ulimit -s)");
  CHECK(made.notes == std::vector<std::string>{"node \"n\""});
  CHECK(timed.code == ErrorCode::kOutOfMemory);
  CHECK_EQ(pipe.submit(Value(2)).wait().number(), 3);
}
#endif
