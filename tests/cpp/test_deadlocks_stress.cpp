// Random nested calls: every request ends, and no call is refused if deadlock cycles are impossible.
#include <atomic>
#include <random>
#include <thread>

#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

Dict to(const std::string& node, std::int64_t number) {
  Dict dict = request_of(Value(number));
  dict.enter("node_name", Value(node));
  return dict;
}

enum class Scenario {
  kAnyNode,      // a node may call any node
  kLaterNodes,   // a node calls only later nodes
  kCloseMidway,  // a node may call any node, and the pipe closes midway
};

// Runs requests whose backends call random nodes. The `data` of a request is a seed; its last digit is the number of levels of
// calls that may follow. Returns the number of requests that failed because of a deadlock cycle.
std::size_t run(unsigned seed, Scenario scenario) {
  constexpr std::int64_t kNodes = 5;
  constexpr std::size_t callers = 6, calls = 40;
  const bool only_later = scenario == Scenario::kLaterNodes;
  std::mt19937 random(seed);
  const auto name = [](std::int64_t node) { return "n" + std::to_string(node); };
  std::shared_ptr<PipeState> state;
  std::atomic<std::size_t> refused{0}, completed{0}, closed{0};
  const auto forward = [&](Batch batch, const Params& params) {
    const std::int64_t here = params.get<std::string>("node_name")[1] - '0';
    for (Request* request : batch) {
      const std::int64_t data = number(*request);
      std::mt19937 random_of_request(static_cast<unsigned>(data));
      if (data % 10 > 0 && (!only_later || here + 1 < kNodes)) {
        std::vector<Dict> dicts;
        for (unsigned i = 0; i <= random_of_request() % 2; ++i) {
          const std::int64_t first = only_later ? here + 1 : 0;
          const std::int64_t next = first + static_cast<std::int64_t>(random_of_request()) % (kNodes - first);
          dicts.push_back(
              to(name(next), static_cast<std::int64_t>(random_of_request() % 100'000) * 10 + data % 10 - 1));
        }
        const Ref<Call> call = state->run(std::move(dicts), kNever);
        for (std::size_t i = 0; i < call->size(); ++i)
          if (call->error(i)) throw Error(*call->error(i));
      }
      answer(*request, Value(0));
    }
  };
  define("TestRandomDedicated", forward, {own_thread(), {1, 4}, "node_name: str"});
  define("TestRandomSerialized", forward, {any_thread(), {1, 4}, "node_name: str"});
  PipeConfig config;
  for (std::int64_t node = 0; node < kNodes; ++node) {
    config.nodes.push_back({name(node),
                            {{"backend", random() % 2 ? "TestRandomDedicated" : "TestRandomSerialized"},
                             {"instance_num", static_cast<std::int64_t>(1 + random() % 3)}}});
    if (random() % 3 == 0 && node + 1 < kNodes) config.nodes.back().keys.emplace_back("next", Value(name(node + 1)));
  }
  TestPipe pipe(config);
  state = pipe->shared_from_this();
  Latch ended;
  std::vector<std::thread> threads;
  for (std::size_t caller = 0; caller < callers; ++caller)
    threads.emplace_back([&, seed = random()] {
      std::mt19937 random_of_request(seed);
      for (std::size_t i = 0; i < calls; ++i) {
        const auto number = static_cast<std::int64_t>(random_of_request() % 100'000) * 10 + 3;
        try {
          const CallResult ended_call =
              pipe.call(to(name(static_cast<std::int64_t>(random_of_request() % kNodes)), number));
          if (!ended_call.good) throw Error(ended_call.code, ended_call.message);
          ++completed;
        } catch (const Error& error) {
          const bool deadlock = error.code() == ErrorCode::kReentrantCall;
          CHECK((deadlock || (scenario == Scenario::kCloseMidway && error.code() == ErrorCode::kPipeClosed)));
          ++(deadlock ? refused : closed);
        }
        ended.add();
      }
    });
  for (std::size_t each = 1; each <= callers * calls; ++each) {
    if (scenario == Scenario::kCloseMidway && each == calls) CHECK(pipe.close(0).empty());
    ended.wait_for(each);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(completed + refused + closed, callers * calls);
  state = nullptr;
  return refused;
}

}  // namespace

TEST_CASE("stress: every request of random nested calls ends") {
  std::size_t refused = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    refused += run(seed, Scenario::kAnyNode);
  }
  CHECK(refused > 0);
}

TEST_CASE("stress: no call is refused if nodes call only later nodes") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    CHECK_EQ(run(seed, Scenario::kLaterNodes), 0u);
  }
}

TEST_CASE("stress: every request ends if its pipe closes during random nested calls") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    run(seed, Scenario::kCloseMidway);
  }
}
