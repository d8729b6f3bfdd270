// Many threads, faults, small queues, deadlines, callers who leave: each request has exactly one outcome, the right one.
//
// How much of it, where nothing else is said, is up to two variables:
//   HAMI_STRESS_THREADS=64 HAMI_STRESS_REQUESTS=1000000 hami_tests -tc="stress: as much as is asked for*"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr std::int64_t kFault = 7;  // every number with this remainder by 10 fails

void define_faulty(const Traits& traits, const Range& range) {
  define("TestFaulty", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      const std::int64_t value = number(*request);
      if (value % 10 == kFault) throw Error(ErrorCode::kRequest, "fault");
      request->dict.set(kData, Value("spoilt"));  // a second try must see what came in
      answer(*request, Value(value + 1));
    }
  }, {traits, range, ""});
}

struct Tally {
  std::atomic<std::size_t> good{0}, failed{0}, full{0}, late{0}, left{0}, closed{0}, wrong{0}, callbacks{0};
  std::size_t sum() const { return good + failed + full + late + left + closed; }

  void count(const Call& call, std::size_t index, std::int64_t sent) {
    const CallResult made = outcome(call, index);
    if (made.good)
      ++(made.number() == sent + 1 && sent % 10 != kFault ? good : wrong);
    else if (made.code == ErrorCode::kRequest)
      ++(sent % 10 == kFault && made.message == "fault" ? failed : wrong);
    else if (made.code == ErrorCode::kQueueFull)
      ++full;
    else if (made.code == ErrorCode::kDeadlineExceeded)
      ++late;
    else if (made.code == ErrorCode::kCancelled)
      ++left;
    else if (made.code == ErrorCode::kPipeClosed)
      ++closed;
    else
      ++wrong;
  }
};

struct Load {
  std::size_t threads = 4;
  std::size_t calls = 3000;  // of each thread
  bool closes = false;       // the pipe is closed while they call
};

std::size_t asked_for(const char* variable, std::size_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoul(text, nullptr, 10) : otherwise;
}

Load load_asked_for() {
  Load load;
  load.threads = std::max<std::size_t>(1, asked_for("HAMI_STRESS_THREADS", 16));
  load.calls = asked_for("HAMI_STRESS_REQUESTS", 20'000) / 2 / load.threads + 4;  // two requests each, on average
  return load;
}

// Every thread mixes calls, lists and submitted requests; some have deadlines, some are left.
void run(const PipeConfig& config, const Load& load) {
  TestPipe pipe(config);
  Tally tally;
  std::atomic<std::size_t> sent{0}, submitted{0}, refused{0};
  Latch begun;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < load.threads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t + 1));
      for (std::size_t i = 0; i < load.calls; ++i) {
        if (i == load.calls / 4) begun.add();
        std::vector<std::int64_t> data(1 + random() % 3);
        for (std::int64_t& one : data) one = static_cast<std::int64_t>(random() % 1000);
        const Nanoseconds timeout = random() % 8 == 0 ? static_cast<Nanoseconds>(random() % 200'000) : kNever;
        const bool leaves = random() % 16 == 0;
        try {
          if (random() % 2) {
            const Ref<Call> call = pipe->start(requests_of(data), timeout, InlinePolicy::kAllow);
            sent += data.size();
            call->wait();
            for (std::size_t k = 0; k < data.size(); ++k) tally.count(*call, k, data[k]);
          } else {
            const Ref<Call> call =
                pipe->start(requests_of(data), timeout, InlinePolicy::kNonBlocking, [&tally, data](Call& done) {
              for (std::size_t k = 0; k < data.size(); ++k) tally.count(done, k, data[k]);
              ++tally.callbacks;
            });
            sent += data.size();
            ++submitted;
            if (leaves) call->give_up(Error(ErrorCode::kCancelled, "left"));
          }
        } catch (const Error& error) {
          CHECK(error.code() == ErrorCode::kPipeClosed);
          ++refused;
        }
      }
    });
  }
  if (load.closes) {
    begun.wait_for(load.threads);
    pipe.close(0);  // names who did not come back within its grace, as may be on a machine that has much else to do
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(pipe.close().empty());
  CHECK_EQ(tally.wrong.load(), 0u);
  CHECK_EQ(tally.sum(), sent.load());
  CHECK_EQ(tally.callbacks.load(), submitted.load());
  CHECK_GT(tally.good.load(), 0u);
  CHECK_GT(tally.failed.load(), 0u);
  if (!load.closes) CHECK_EQ(refused.load(), 0u);
}

}  // namespace

TEST_CASE("stress: each request of many threads has one outcome") {
  std::mt19937 random(20);
  for (const ThreadMode thread : {ThreadMode::kDedicated, ThreadMode::kSerialized, ThreadMode::kConcurrent}) {
    define_faulty({thread, thread == ThreadMode::kConcurrent, true}, {1, 4});
    for (const char* on_full : {"block", "reject"}) {
      run(one_node({{"backend", "TestFaulty"},
                    {"instance_num", 1 + static_cast<int>(random() % 3)},
                    {"max_queue_size", 1 + static_cast<int>(random() % 16)},
                    {"on_full", on_full},
                    {"batching_timeout", random() % 2 ? "0" : "0.1ms"}}),
          {});
    }
  }
}

namespace {

PipeConfig branches_and_join() {
  define_faulty(own_thread(), {1, 4});
  define("TestKeep", [](Batch batch, const Params&) { add(batch, 0); }, {any_thread(), {1, 3}, ""});
  define("TestFirst", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      CHECK_EQ(request->dict.find("other")->as_int(), number(*request) - 1);
      answer(*request, Value(number(*request)));
    }
  }, {Traits{ThreadMode::kConcurrent, true, true}, {1, 8}, ""});
  PipeConfig config;
  config.nodes = {
      {"start", {{"backend", "TestKeep"}, {"next", "left,right"}, {"instance_num", 2}, {"max_queue_size", 3}}},
      {"left", {{"backend", "TestFaulty"}, {"next", "join"}, {"max_queue_size", 2}}},
      {"right", {{"backend", "TestKeep"}, {"next", "join"}}},
      {"join", {{"backend", "TestFirst"}, {"map", "left[result:data],right[result:other]"}}}};
  return config;
}

}  // namespace

TEST_CASE("stress: a graph with branches and a join") { run(branches_and_join(), {4, 1500, false}); }

TEST_CASE("stress: as much as is asked for, at one node") {
  define_faulty(own_thread(), {1, 8});
  run(one_node({{"backend", "TestFaulty"}, {"instance_num", 3}, {"max_queue_size", 32}}), load_asked_for());
}

TEST_CASE("stress: as much as is asked for, in a graph") { run(branches_and_join(), load_asked_for()); }

TEST_CASE("stress: an entrypoint that waits itself") {
  define_faulty(own_thread(), {1, 4});
  PipeConfig config = one_node({{"backend", "TestFaulty"}, {"max_queue_size", 4}, {"instance_num", 2}});
  config.entrypoint = "S[Identity,Forward[node.n]]";
  run(config, {4, 1000, false});
}

TEST_CASE("stress: pipes that close under load") {
  for (const ThreadMode thread : {ThreadMode::kDedicated, ThreadMode::kSerialized}) {
    define_faulty({thread, false, true}, {1, 4});
    for (int round = 0; round < 10; ++round)
      run(one_node({{"backend", "TestFaulty"}, {"instance_num", 2}, {"max_queue_size", 4}}), {4, 200, true});
  }
}
