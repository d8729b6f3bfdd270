// Random nested calls: every request ends, and none is refused where no deadlock cycle is possible.
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

enum class Play { kAnywhere, kUpwards, kClosed };

// Requests that call nodes at random, several levels deep: `data` is a seed, its last digit how deep it still goes. Upwards
// they call only nodes behind their own; `kClosed`: anywhere, until the pipe is closed in the middle. Returns how many were
// refused.
std::size_t play(unsigned seed, Play how) {
  constexpr std::int64_t kNodes = 5;
  constexpr std::size_t callers = 6, calls = 40;
  const bool upwards = how == Play::kUpwards;
  std::mt19937 random(seed);
  const auto name = [](std::int64_t node) { return "n" + std::to_string(node); };
  std::shared_ptr<PipeState> state;
  std::atomic<std::size_t> refused{0}, good{0}, closed{0};
  const auto act = [&](Batch batch, const Params& params) {
    const std::int64_t here = params.get<std::string>("node_name")[1] - '0';
    for (Request* request : batch) {
      const std::int64_t given = number(*request);
      std::mt19937 dice(static_cast<unsigned>(given));
      if (given % 10 > 0 && (!upwards || here + 1 < kNodes)) {
        std::vector<Dict> dicts;
        for (unsigned i = 0; i <= dice() % 2; ++i) {
          const std::int64_t first = upwards ? here + 1 : 0;
          const std::int64_t next = first + static_cast<std::int64_t>(dice()) % (kNodes - first);
          dicts.push_back(to(name(next), static_cast<std::int64_t>(dice() % 100'000) * 10 + given % 10 - 1));
        }
        const Ref<Call> call = state->run(std::move(dicts), kNever);
        for (std::size_t i = 0; i < call->size(); ++i)
          if (call->error(i)) throw Error(*call->error(i));
      }
      answer(*request, Value(0));
    }
  };
  define("TestRandomOwn", act, {own_thread(), {1, 4}, "node_name: str"});
  define("TestRandomAny", act, {any_thread(), {1, 4}, "node_name: str"});
  PipeConfig config;
  for (std::int64_t node = 0; node < kNodes; ++node) {
    config.nodes.push_back({name(node),
                            {{"backend", random() % 2 ? "TestRandomOwn" : "TestRandomAny"},
                             {"instance_num", static_cast<std::int64_t>(1 + random() % 3)}}});
    if (random() % 3 == 0 && node + 1 < kNodes) config.nodes.back().keys.emplace_back("next", Value(name(node + 1)));
  }
  TestPipe pipe(config);
  state = pipe->shared_from_this();
  Latch ended;
  std::vector<std::thread> threads;
  for (std::size_t caller = 0; caller < callers; ++caller)
    threads.emplace_back([&, seed = random()] {
      std::mt19937 dice(seed);
      for (std::size_t i = 0; i < calls; ++i) {
        const auto number = static_cast<std::int64_t>(dice() % 100'000) * 10 + 3;
        try {
          const Outcome made = pipe.call(to(name(static_cast<std::int64_t>(dice() % kNodes)), number));
          if (!made.good) throw Error(made.code, made.message);
          ++good;
        } catch (const Error& error) {
          const bool circle = error.code() == ErrorCode::kReentrantCall;
          CHECK((circle || (how == Play::kClosed && error.code() == ErrorCode::kPipeClosed)));
          ++(circle ? refused : closed);
        }
        ended.add();
      }
    });
  for (std::size_t each = 1; each <= callers * calls; ++each) {
    if (how == Play::kClosed && each == calls) CHECK(pipe.close(0).empty());
    ended.wait_for(each);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(good + refused + closed, callers * calls);
  state = nullptr;
  return refused;
}

}  // namespace

TEST_CASE("stress: in graphs of calls at random every request ends") {
  std::size_t refused = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    refused += play(seed, Play::kAnywhere);
  }
  CHECK(refused > 0);
}

TEST_CASE("stress: where nodes call only those behind them no call is refused") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    CHECK_EQ(play(seed, Play::kUpwards), 0u);
  }
}

TEST_CASE("stress: a pipe that is closed while its nodes call each other at random ends all of it") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    play(seed, Play::kClosed);
  }
}
