// The times of a node: in the queue, of batches, of whole requests, and of each backend.
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

std::uint64_t count_of(const Histogram& histogram) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) count += histogram.count(i);
  return count;
}

void busy_until(Nanoseconds moment) {
  while (now() < moment) {
  }
}

void pass_on(Batch batch) {
  for (Request* request : batch) request->dict.set(kResult, *request->dict.find(kData));
}

std::vector<std::pair<std::string, std::uint64_t>> backends_of(const TestPipe& pipe) {
  std::vector<std::pair<std::string, std::uint64_t>> backends;
  pipe->times().at("n").backends.for_each(
      [&](const BackendTime& time) { backends.emplace_back(time.name, time.nanoseconds); });
  return backends;
}

}  // namespace

TEST_CASE("each request that ran has a queue time and a latency, and each batch a time and a size") {
  TestPipe pipe({{"backend", "Identity"}, {"max", 4}});
  CHECK(pipe.call(Value(1)).good);
  pipe.call_many(requests_of({1, 2, 3}));
  const NodeTimes& times = pipe->times().at("n");
  const NodeStats& stats = pipe->stats().at("n");
  CHECK(count_of(times.queue) == 4);
  CHECK(count_of(times.latency) == 4);
  CHECK(count_of(times.batch) == stats.batches);
  CHECK(count_of(times.batch_items) == stats.batches);
  CHECK(times.batch_items.sum() == 4);
  CHECK(times.batch.sum() == stats.compute_ns);
  CHECK(times.latency.sum() >= times.queue.sum());
}

TEST_CASE("a request waits in the queue while another batch runs") {
  constexpr std::uint64_t kWait = 2'000'000;
  Gated gated("TestTimesGated");
  TestPipe pipe({{"backend", "TestTimesGated"}, {"max", 1}});
  TestPipe::Pending first = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending second = pipe.submit(Value(2));
  busy_until(now() + kWait);
  gated.gate->open();
  CHECK(first.wait().good);
  CHECK(second.wait().good);
  const NodeTimes& times = pipe->times().at("n");
  CHECK(times.queue.sum() >= kWait);
  CHECK(times.latency.sum() >= 2 * kWait);
}

TEST_CASE("each backend of a sequence has a time of its own, in written order, and containers have none") {
  constexpr Nanoseconds kBusy = 1'000'000;
  define("TestTimesBusy", [](Batch batch, const Params&) {
    busy_until(now() + kBusy);
    pass_on(batch);
  });
  TestPipe pipe({{"backend", "S[Identity,S[TestTimesBusy,Identity]]"}, {"instance_num", 2}});
  CHECK(pipe.call(Value(1)).good);
  const auto backends = backends_of(pipe);
  REQUIRE(backends.size() == 3);
  CHECK(backends[0].first == "Identity");
  CHECK(backends[1].first == "TestTimesBusy");
  CHECK(backends[2].first == "Identity");
  CHECK(backends[1].second >= kBusy);
  CHECK(backends[1].second <= pipe->stats().at("n").compute_ns);
}

TEST_CASE("the only backend of a node is not measured apart from the node") {
  TestPipe pipe({{"backend", "Identity"}});
  CHECK(pipe.call(Value(1)).good);
  const auto backends = backends_of(pipe);
  REQUIRE(backends.size() == 1);
  CHECK(backends[0].second == 0);
}

TEST_CASE("a request that visits another node inside its batch keeps its own times") {
  constexpr Nanoseconds kBusy = 1'000'000;
  define("TestTimesInner", [](Batch batch, const Params&) {
    busy_until(now() + kBusy);
    pass_on(batch);
  }, {own_thread(), {}, ""});
  Gated gated("TestTimesOuter");
  PipeConfig config;
  config.nodes.push_back({"inner", {{"backend", "TestTimesInner"}}});
  config.nodes.push_back({"outer", {{"backend", "S[TestTimesOuter,Forward[node.inner]]"}, {"max", 1}}});
  config.entrypoint = "Forward[node.outer]";
  TestPipe pipe(config);
  TestPipe::Pending first = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending second = pipe.submit(Value(2));
  busy_until(now() + kBusy);
  gated.gate->open();
  CHECK(first.wait().good);
  CHECK(second.wait().good);
  const NodeTimes& outer = pipe->times().at("outer");
  CHECK(count_of(outer.queue) == 2);
  CHECK(outer.queue.sum() >= static_cast<std::uint64_t>(kBusy));
  CHECK(count_of(pipe->times().at("inner").latency) == 2);
}
