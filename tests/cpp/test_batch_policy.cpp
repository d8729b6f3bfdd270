// The batching policy as pure functions: for which returns a batch is held, and for how long; the return times of callers.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "schedule/batch_policy.hpp"

using namespace hami;

namespace {

// Batches of b items take 1000 + 100 * b.
double time_of(double items) { return 1000 + 100 * items; }
constexpr double kBeta = 1000;

// Callers who returned after these times, and `pending` more who were answered at 0.
ReturnTimes returning(const std::vector<Nanoseconds>& times, std::size_t pending) {
  ReturnTimes returns;
  returns.answer(-100'000, times.size());
  for (const Nanoseconds time : times) returns.arrive(-100'000 + time);
  returns.answer(0, pending);
  return returns;
}

Hold held(const ReturnTimes& returns, const Ready& ready, Nanoseconds moment = 0) {
  return hold_for_returns(returns, ready, moment, kBeta, time_of);
}

Ready ready(std::size_t requests, std::size_t max = 64) { return {requests, requests, max}; }

}  // namespace

TEST_CASE("n requests wait for k returns iff n * w < k * beta") {
  for (const std::size_t n : {1, 2, 4, 8})
    for (const std::size_t k : {1, 2, 4})
      for (const Nanoseconds w : {60, 110, 240, 260, 490, 510, 740, 990}) {
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(w);
        const bool pays = static_cast<double>(n) * static_cast<double>(w) < static_cast<double>(k) * kBeta;
        CHECK_EQ(held(returning(std::vector<Nanoseconds>(k, w), k), ready(n)).requests, pays ? k : 0);
      }
}

TEST_CASE("a hold lasts twice the expected time at most, never longer than it may cost, and beta in all") {
  CHECK_EQ(held(returning({100, 100}, 2), ready(1)).timeout, 200);
  CHECK_EQ(held(returning({900}, 1), ready(1)).timeout, 1000);
  CHECK_EQ(held(returning({300}, 1), ready(2)).timeout, 500);  // two requests may wait for 500 each
  Ready late = ready(1);
  late.free = 850;
  CHECK_EQ(held(returning({100, 100}, 2), late).timeout, 150);
  late.free = 1000;
  CHECK_EQ(held(returning({100, 100}, 2), late).requests, 0u);
}

TEST_CASE("without open results, no caller is expected") {
  ReturnTimes returns = returning({100, 100}, 0);
  CHECK_EQ(held(returns, ready(1)).requests, 0u);
  returns.arrive(50);  // of a caller without an earlier answer
  CHECK_EQ(held(returns, ready(1)).requests, 0u);
}

TEST_CASE("without a request the instance expects the callers whose return gives the highest rate") {
  CHECK_EQ(held(returning({100, 100, 100, 100}, 4), ready(0)).requests, 4u);
  CHECK_EQ(held(returning({100, 100, 100, 900}, 4), ready(0)).requests, 3u);  // the last one is not worth its wait
  CHECK_EQ(held(returning({2000, 2000}, 2), ready(0)).requests, 0u);
}

TEST_CASE("only returns for which the batch has space are waited for") {
  CHECK_EQ(held(returning({100, 100, 100, 100}, 4), ready(2, 4)).requests, 2u);
  CHECK_EQ(held(returning({100, 100}, 2), ready(4, 4)).requests, 0u);
}

TEST_CASE("a deadline ends a hold in time for the batch") {
  Ready urgent = ready(1);
  urgent.deadline = 1450;  // a batch of two takes 1200, of three 1300
  CHECK_EQ(held(returning({100, 200}, 2), urgent).requests, 1u);
  urgent.deadline = 1350;
  CHECK_EQ(held(returning({100, 100}, 2), urgent).timeout, 150);
  urgent.deadline = 1290;
  CHECK_EQ(held(returning({100, 100}, 2), urgent).requests, 0u);
}

TEST_CASE("callers who are later than all known return times are not expected any more") {
  CHECK_EQ(held(returning({100, 100, 300, 300}, 4), ready(1), 100).requests, 4u);  // after another 200
  CHECK_EQ(held(returning({100, 100, 300, 300}, 4), ready(1), 300).requests, 0u);
}

TEST_CASE("return times of the past are forgotten") {
  ReturnTimes returns;
  Nanoseconds moment = 0;
  const auto round = [&](Nanoseconds time) {
    returns.answer(moment, 4);
    for (int i = 0; i < 4; ++i) returns.arrive(moment + time);
    moment += 10'000;
  };
  for (int i = 0; i < 20; ++i) round(100);
  for (int i = 0; i < 16; ++i) round(700);
  returns.answer(moment, 4);
  Nanoseconds first = 0;
  returns.for_each_return(moment, kNever, [&](std::size_t count, Nanoseconds wait) {
    if (count == 1) first = wait;
  });
  CHECK_EQ(first, 700);
}

TEST_CASE("a moving mean starts with the first value and follows a change") {
  CHECK_EQ(moving_mean(0, 600), 600);
  CHECK_EQ(moving_mean(600, 1400), 700);
  double mean = 600;
  for (int i = 0; i < 60; ++i) mean = moving_mean(mean, 1200);
  CHECK_GT(mean, 1190);
}
