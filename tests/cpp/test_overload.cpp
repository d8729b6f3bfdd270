// Requests that cannot end before their deadline: which of them a node does not run, and in which order it runs the others.
#include <utility>
#include <vector>

#include "pipes.hpp"
#include "scheduled.hpp"
#include "tensors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

using Action = NodeScheduler::Action;

constexpr Nanoseconds kItemTime = 100, kBatchTime = 900;  // of a batch

// A node that has learned that a batch of n items takes 900 + 100 * n, at the moment `at`.
struct OverloadedNode {
  NodeScheduler scheduler{"n"};
  Nanoseconds at = 100'000;
  std::uint64_t calls = 0;

  explicit OverloadedNode(std::size_t max = 1, std::size_t runs = policy::kKnown) {
    scheduler.add_instance({1, max}, false);
    scheduler.config().batching = {BatchingMode::kGreedy, max, 1, 0};
    scheduler.config().by_deadline = true;  // it learns from batches that were not queued too
    for (std::size_t items = 1; items <= max; items *= 2)
      for (std::size_t run = 0; run < runs; ++run) scheduler.record_batch(0, items, time(items), at);
  }
  static Nanoseconds time(std::size_t items) { return kBatchTime + kItemTime * static_cast<Nanoseconds>(items); }
  // Requests with these timeouts from now on, numbered by `index`.
  void push(const std::vector<Nanoseconds>& timeouts, std::uint8_t priority = 0) {
    for (const Nanoseconds timeout : timeouts) {
      Ref<Request> request = request_of(1);
      request->deadline = after(at, timeout);
      request->priority = priority;
      request->index = calls;
      scheduler.push(std::move(request), at, ++calls);
    }
  }
  std::vector<std::size_t> removed;  // expired so far
  // The next batch; it ends at once, and the moment is its end.
  std::vector<std::size_t> next() {
    RequestChain taken, late;
    if (scheduler.idle().size() == 1) REQUIRE(scheduler.dispatch_idle().has_value());
    Action step{};
    do {
      step = scheduler.next_action(0, at, taken, late);
      for (const Ref<Request>& request : all_of(late)) {
        CHECK(request->error->code() == ErrorCode::kDeadlineExceeded);
        removed.push_back(request->index);
      }
    } while (step.what == Action::kAgain);
    std::vector<std::size_t> batch;
    for (const Ref<Request>& request : all_of(taken)) batch.push_back(request->index);
    if (batch.empty()) return batch;
    const Nanoseconds took = time(batch.size());
    at += took;
    scheduler.record_batch(0, batch.size(), took, at);
    return batch;
  }
};

using Indices = std::vector<std::size_t>;

}  // namespace

TEST_CASE("a request that cannot end before its deadline is not run") {
  OverloadedNode node;
  node.push({999, 1000, 5000});
  CHECK_EQ(node.next(), Indices{1});
  CHECK_EQ(node.removed, Indices{0});
  CHECK_EQ(node.next(), Indices{2});
  CHECK_EQ(node.next(), Indices{});
}

TEST_CASE("a node that has not learned the time of a batch runs every request") {
  for (const std::size_t runs : {std::size_t{0}, policy::kKnown - 1}) {
    OverloadedNode node(1, runs);
    node.push({1, 5000});
    CHECK_EQ(node.next(), Indices{0});
    CHECK_EQ(node.removed, Indices{});
  }
}

TEST_CASE("a size that has not run is never expected to take longer than a known one") {
  OverloadedNode node(8, 0);
  for (std::size_t run = 0; run < policy::kKnown; ++run)
    node.scheduler.record_batch(0, 1, OverloadedNode::time(1), node.at);
  const Ref<Request> large = request_of(8);
  large->deadline = node.at + 1000;
  CHECK_FALSE(node.scheduler.fail_if_late(*large, node.at));
  large->deadline = node.at + 999;
  CHECK(node.scheduler.fail_if_late(*large, node.at));
}

TEST_CASE("an estimate that nothing has confirmed for a while no longer stops requests") {
  OverloadedNode node;
  for (std::size_t run = 0; run < 200; ++run) node.scheduler.record_batch(0, 1, 10'000, node.at);  // it was slow
  node.push({5000});
  CHECK_EQ(node.next(), Indices{});
  CHECK_EQ(node.removed, Indices{0});
  node.at += static_cast<Nanoseconds>(policy::kEstimateLasts) * 10'000;
  node.push({5000});
  CHECK_EQ(node.next(), Indices{1});  // takes 1000 again
  node.push({5000});
  CHECK_EQ(node.next(), Indices{2});
}

TEST_CASE("after a slow start of the backend, fast requests with a short timeout are refused for about one slow run") {
  for (const std::size_t slow : {policy::kKnown, policy::kMeanOf}) {
    OverloadedNode node(1, 0);
    for (std::size_t run = 0; run < slow; ++run) node.scheduler.record_batch(0, 1, 1'000'000, node.at += 1'000'000);
    const Nanoseconds started = node.at;
    for (bool ran = false; !ran; node.at += 10'000) {
      node.push({5000});
      ran = !node.next().empty();
    }
    CHECK_LE(node.at - started, 1'100'000);
    for (std::size_t i = 0; i < 100; ++i) {
      const std::size_t refused = node.removed.size();
      node.push({5000});
      CHECK_EQ(node.next().size(), 1u);
      CHECK_EQ(node.removed.size(), refused);
    }
  }
}

TEST_CASE("while all can end in time, requests run in the order of their deadlines, and of their arrival") {
  OverloadedNode node;
  node.push({9000, 9000, 5000, 9000, 9000, kNever, 9000, kNever});
  for (const std::size_t index : {2, 0, 1, 3, 4, 6, 5, 7}) CHECK_EQ(node.next(), Indices{index});
  CHECK(node.removed.empty());
}

TEST_CASE("requests without a deadline run in the order of their arrival, however many they are") {
  OverloadedNode node(4);
  node.push(std::vector<Nanoseconds>(1000, kNever));
  for (std::size_t first = 0; first < 1000; first += 4)
    CHECK_EQ(node.next(), (Indices{first, first + 1, first + 2, first + 3}));
}

TEST_CASE("while not all can end in time, those that can do run first, and none ends late") {
  OverloadedNode node;
  std::size_t in_time = 0, ran = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    node.push({4000, 4000, 4000});
    ran += node.next().size();
    in_time = ran;
  }
  CHECK_EQ(ran, 1000u);
  CHECK_EQ(in_time, 1000u);
}

TEST_CASE("a batch is as small as its first request needs if all others can wait") {
  OverloadedNode node(8);
  node.push({1200, 9000, 9000, 9000, 9000, 9000});
  CHECK_EQ(node.next(), (Indices{0, 1, 2}));
  CHECK_EQ(node.next(), (Indices{3, 4, 5}));
  CHECK(node.removed.empty());
}

TEST_CASE("while not all can end in time, a batch has as many requests as end in time") {
  OverloadedNode node(8);
  node.push(std::vector<Nanoseconds>(3, 1000));
  node.push(std::vector<Nanoseconds>(20, 1800));
  CHECK_EQ(node.next().size(), 8u);
  CHECK_EQ(node.removed, Indices{});
}

TEST_CASE("a higher class runs first, also while it cannot end in time for sure") {
  OverloadedNode node;
  node.push({1000, 1000}, kUrgentPriority);
  node.push({3000, 3000, 3000});
  CHECK_LE(node.next().front(), 1u);
  CHECK_GE(node.next().front(), 2u);
}

TEST_CASE("requests whose caller has left do not run, wherever a batch begins") {
  OverloadedNode node(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<Ref<Request>> requests;
    for (int i = 0; i < 12; ++i) {
      requests.push_back(request_of(1));
      requests.back()->deadline = node.at + 2000;
      node.scheduler.push(requests.back(), node.at, ++node.calls);
    }
    for (int i = 0; i < 12; i += 3) requests[static_cast<std::size_t>(i)]->abandon();
    RequestChain taken, removed;
    if (node.scheduler.idle().size() == 1) node.scheduler.dispatch_idle();
    while (node.scheduler.next_action(0, node.at, taken, removed).what == Action::kAgain) removed.clear();
    for (const Ref<Request>& request : all_of(taken)) CHECK_FALSE(request->abandoned());
    node.at += 1300;
    node.scheduler.record_batch(0, 4, 1300, node.at);
  }
}

TEST_CASE("a wait for a larger batch ends in time for the first deadline") {
  OverloadedNode node(8);
  node.scheduler.config().batching.batching_timeout = 50'000;
  node.push({4000, 6000});
  RequestChain taken, removed;
  REQUIRE(node.scheduler.dispatch_idle().has_value());
  const Action step = node.scheduler.next_action(0, node.at, taken, removed);
  CHECK(step.what == Action::kWait);
  CHECK_LE(step.until, node.at + 4000 - OverloadedNode::time(2));
  CHECK(node.scheduler.next_action(0, step.until, taken, removed).what == Action::kRun);
}

TEST_CASE("a request that cannot end in time fails at once with a timeout, and counts as expired") {
  Seen seen;
  define("TestTakes200ms", [&](Batch batch, const Params&) {
    seen.add(batch);
    for (const Nanoseconds end = now() + 200'000'000; now() < end;) {
    }
    add(batch, 0);
  }, {own_thread(), {1, 1}, ""});
  TestPipe pipe({{"backend", "TestTakes200ms"}});
  // One more than needed: the time of a batch is recorded before the next one starts, but after its callers continue.
  for (std::size_t run = 0; run <= policy::kKnown; ++run) CHECK(pipe.call(Value(0)).good);
  Dict late = request_of(Value(1));
  late.enter("timeout", text("150ms"));  // it must not end before the node looks at the request
  const CallResult expired = pipe.call(std::move(late));
  CHECK(expired.code == ErrorCode::kDeadlineExceeded);
  CHECK_NE(expired.message.find("node \"n\" did not run this request, which takes at least "), std::string::npos);
  CHECK_EQ(seen.batches(), (Rows{{0}, {0}, {0}, {0}}));
  const NodeStats& stats = pipe->stats().at("n");
  CHECK_EQ(stats.expired.load(), 1u);
  CHECK_EQ(stats.submitted.load(), 5u);
}

TEST_CASE(
    "the time of a run that waits for the reader of its parts is not learned, and parts have no need of the end") {
  define("TestEmits", [&](Batch batch, const Params&) {
    batch[0].emit(Value(1));
    for (const Nanoseconds end = now() + 1'000'000'000; number(batch[0]) == 1 && now() < end;) {
    }
    add(batch, 0);
  }, {own_thread(), {1, 1}, ""});
  TestPipe pipe({{"backend", "TestEmits"}});
  const auto call = [&](int slow, const char* timeout, bool streams) {
    Dict request = request_of(Value(slow));
    if (streams) request.enter("parts", Value::share(*make_object<Queue>(4)));
    if (timeout) request.enter("timeout", text(timeout));
    return pipe.call(std::move(request));
  };
  for (std::size_t run = 0; run <= policy::kKnown; ++run) CHECK(call(1, nullptr, true).good);
  CHECK(call(0, "900ms", false).good);
  CHECK(call(0, "900ms", true).good);
  for (std::size_t run = 0; run <= policy::kKnown; ++run) CHECK(call(1, nullptr, false).good);
  CHECK(call(0, "900ms", false).code == ErrorCode::kDeadlineExceeded);
  CHECK(call(0, "900ms", true).good);
}

TEST_CASE("a value whose size cannot be read fails its request alone, and the others end once") {
  class Unreadable final : public ListObject {
   public:
    std::size_t size() const override { return 1; }
    Value at(std::size_t) const override { throw Error(ErrorCode::kRequest, "it cannot be read"); }
  };
  define("TestTakesAny", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(1));
  }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestTakesAny"}, {"memory_limit", text("1MiB")}});
  Dict rejected = request_of(Value(1));
  rejected.enter("request_size", Value(9));
  std::vector<Dict> dicts;
  dicts.push_back(std::move(rejected));
  dicts.push_back(request_of(Value::adopt(new Unreadable)));
  dicts.push_back(request_of(Value(3)));
  const std::vector<CallResult> outcomes = pipe.call_many(std::move(dicts));
  CHECK_FALSE(outcomes[0].good);
  CHECK_EQ(outcomes[1].message, "it cannot be read");
  CHECK(outcomes[2].good);
  const NodeStats& stats = pipe->stats().at("n");
  CHECK_EQ(stats.submitted.load(), 3u);
  CHECK_EQ(stats.failed.load(), 2u);
  CHECK_EQ(stats.completed.load(), 1u);
}

TEST_CASE("a tensor in device memory counts for memory_limit, and its request runs") {
  define("TestTakesTensor", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(1));
  }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestTakesTensor"}, {"memory_limit", text("10KiB")}});
  struct Held {
    DLManagedTensorVersioned managed{};
    std::int64_t shape = 0;
  };
  const auto on_device = [](std::int64_t bytes) {
    auto* held = new Held{};
    held->shape = bytes;
    held->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    held->managed.manager_ctx = held;
    held->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Held*>(self->manager_ctx); };
    held->managed.dl_tensor.device = {kDLCUDA, 0};
    held->managed.dl_tensor.data = held;  // never read
    held->managed.dl_tensor.dtype = {kDLUInt, 8, 1};
    held->managed.dl_tensor.ndim = 1;
    held->managed.dl_tensor.shape = &held->shape;
    return to_value(TensorObject::adopt_on_device(&held->managed, nullptr));
  };
  CHECK(pipe.call(on_device(5'000)).good);
  CHECK(pipe.call(on_device(50'000)).code == ErrorCode::kQueueFull);
}
