// The message of a timeout: the limit, and where the request was.
#include <regex>

#include "pipes.hpp"
#include "request/node_visits.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr Nanoseconds kMs = 1'000'000;
constexpr Nanoseconds kLimit = 500 * kMs;  // a loaded machine still takes the request to its node in this time

Ref<Request> request_until(Nanoseconds began, Nanoseconds deadline) {
  Ref<Request> request = make_counted<Request>();
  request->deadline = deadline;
  request->visits = make_object<NodeVisits>(began);
  return request;
}

// The message with T for each duration.
std::string shape(const std::string& message) {
  return std::regex_replace(message, std::regex("[0-9.]+(us|ms|s)"), "T");
}

}  // namespace

TEST_CASE("a timeout names the node, the limit, the time waited and the time run") {
  const Ref<Request> request = request_until(100 * kMs, 150 * kMs);
  NodeVisits& visits = *visits_of(*request);
  CHECK_EQ(deadline_exceeded(*request, 150 * kMs).message(),
           "the request timed out: its limit of 50ms passed before it reached a node");
  visits.arrive("det", 101 * kMs);
  CHECK_EQ(deadline_exceeded(*request, 150 * kMs).message(),
           "the request timed out: its limit of 50ms passed at node \"det\" (waited 49ms, ran 0ms)");
  visits.start("det", 113 * kMs);
  CHECK_EQ(deadline_exceeded(*request, 150 * kMs).message(),
           "the request timed out: its limit of 50ms passed at node \"det\" (waited 12ms, ran 37ms)");
  visits.leave("det", true);
  CHECK_EQ(deadline_exceeded(*request, 150 * kMs).message(),
           "the request timed out: its limit of 50ms passed after node \"det\"");
  visits.arrive("rec", 140 * kMs + 500'000);
  CHECK_EQ(
      deadline_exceeded(*request, 150 * kMs).message(),
      "the request timed out: its limit of 50ms passed at node \"rec\" (reached after 40.5ms, waited 9.5ms, ran 0ms)");
}

TEST_CASE("a timeout names every node at which branches of the request are, each once") {
  const Ref<Request> request = request_until(0, 2000 * kMs);
  NodeVisits& visits = *visits_of(*request);
  const Ref<Request> part = request->branch({}, 0);
  CHECK(visits_of(*part) == &visits);
  for (int i = 0; i < 3; ++i) visits.arrive("lines", i * kMs);
  visits.arrive("page", 0);
  visits.start("lines", 1234'567'890);
  visits.start("lines", 1500 * kMs);
  visits.leave("lines", true);
  CHECK_EQ(
      deadline_exceeded(*part, 2000 * kMs).message(),
      "the request timed out: its limit of 2s passed at node \"lines\" (waited 1.23s, ran 765ms) and at node \"page\" "
      "(waited 2s, ran 0ms)");
  visits.leave("lines", true);
  visits.leave("lines", false);
  visits.leave("lines", false);  // more often than it arrived
  CHECK_EQ(deadline_exceeded(*part, 2000 * kMs).message(),
           "the request timed out: its limit of 2s passed at node \"page\" (reached after 0ms, waited 2s, ran 0ms)");
}

TEST_CASE("a request without a deadline keeps no visits") {
  Request request;
  CHECK(visits_of(request) == nullptr);
  request.deadline = 5;
  CHECK_EQ(deadline_exceeded(request, 5).message(), "the request timed out");
}

TEST_CASE("visits that a caller records keep those that have ended, with their moments") {
  const Ref<NodeVisits> visits = NodeVisits::recorded();
  visits->arrive("det", 10);
  visits->start("det", 20);
  visits->leave("det", true);
  visits->arrive("rec", 30);
  visits->arrive("rec", 31);
  visits->leave("rec", false, true);
  const std::vector<NodeVisits::Visit> all = visits->all();
  REQUIRE_EQ(all.size(), 2U);
  CHECK_EQ(all[0].node, "det");
  CHECK_EQ(all[0].arrived, 10);
  CHECK_EQ(all[0].started, 20);
  CHECK(all[0].ended != kNever);
  CHECK_FALSE(all[0].failed);
  CHECK_EQ(all[1].node, "rec");
  CHECK_EQ(all[1].ended, kNever);
  CHECK(all[1].failed);
  for (std::size_t i = 0; i < 2 * NodeVisits::kMaxEnded; ++i) {
    visits->arrive("loop", 40);
    visits->leave("loop", false);
  }
  CHECK_EQ(visits->all().size(), NodeVisits::kMaxEnded + 1);
}

TEST_CASE("a request that times out in a queue, in a backend or beside one names that node") {
  const Gated left("TestLeft"), right("TestRight");
  TestPipe pipe(graph({{"split", {{"backend", "Identity"}, {"next", "left,right"}}},
                       {"left", {{"backend", "TestLeft"}}},
                       {"right", {{"backend", "TestRight"}}}}));
  TestPipe::Pending first = pipe.submit(Value(1));
  left.gate->arrived.wait_for(1);
  right.gate->arrived.wait_for(1);
  // The second request waits behind the first at both nodes.
  CHECK_EQ(
      shape(pipe.submit(request_of(Value(2)), kLimit).wait().message),
      "the request timed out: its limit of T passed at node \"left\" (reached after T, waited T, ran T) and at node "
      "\"right\" (reached after T, waited T, ran T)");
  right.gate->open();
  left.gate->open();
  CHECK(first.wait().good);
  const Gated slow("TestSlow");
  TestPipe alone({{"backend", "TestSlow"}});
  TestPipe::Pending running = alone.submit(request_of(Value(2)), kLimit);
  slow.gate->arrived.wait_for(1);
  CHECK_EQ(shape(running.wait().message),
           "the request timed out: its limit of T passed at node \"n\" (waited T, ran T)");
  slow.gate->open();
}

TEST_CASE("a request that times out before a full queue says so") {
  const Gated gated("TestGated");
  TestPipe pipe({{"backend", "TestGated"}, {"max_queue_size", 1}});
  TestPipe::Pending first = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending second = pipe.submit(Value(2));
  CHECK_EQ(
      shape(outcome(*pipe->run(requests_of({3}), kLimit)).message),
      "the request timed out: its limit of T passed at node \"n\" (waited T, ran T); the queue of node \"n\" was full");
  gated.gate->open();
  CHECK(first.wait().good);
  CHECK(second.wait().good);
}
