// PolicyTrial: adopts the alternative with the lower latency.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "schedule/policy_trial.hpp"

using namespace hami;

namespace {

// A trial of one alternative, whether batches are held, and what the node has adopted.
struct Holds {
  PolicyTrial trial;
  bool adopted = false;
  bool use_alternative() const { return adopted != (trial.trying() == PolicyTrial::kHold); }
  void record_batch(Nanoseconds latency, std::size_t requests) {
    const double items = static_cast<double>(requests), cost = static_cast<double>(latency);
    if (trial.record_batch({cost * items, cost, items})) adopted = !adopted;
  }
};

// Runs batches whose latency is 100 with the baseline and as given with the alternative, varied by `chance`.
class Trial {
 public:
  Trial(Holds& trial, double alternative, double chance = 0, bool differ = true)
      : trial_(trial), alternative_(alternative), chance_(chance), differ_(differ) {}

  // Of so many batches those that ran with the alternative.
  std::size_t run(std::size_t batches) {
    std::size_t by_alternative = 0;
    for (std::size_t i = 0; i < batches; ++i) {
      by_alternative += trial_.use_alternative();
      if (differ_) trial_.trial.note_difference(PolicyTrial::kHold);
      const double latency = (trial_.use_alternative() ? alternative_ : 100) * (1 + chance_ * by_chance());
      trial_.record_batch(static_cast<Nanoseconds>(1000 * latency), 16);
    }
    return by_alternative;
  }

 private:
  // Of standard deviation 1, and the same numbers with every library, as those of std::normal_distribution are not.
  double by_chance() { return std::sqrt(3.0) * (2 * static_cast<double>(random_()) / 4294967295.0 - 1); }

  Holds& trial_;
  const double alternative_, chance_;
  const bool differ_;
  std::mt19937 random_{1};
};

}  // namespace

TEST_CASE("a trial starts with the baseline and keeps the policy with the lower latency") {
  for (const double chance : {0.0, 0.1, 0.3}) {
    CAPTURE(chance);
    Holds faster;
    CHECK_FALSE(faster.use_alternative());
    Trial course(faster, 80, chance);
    course.run(1'000);
    const std::size_t kept = course.run(20'000);
    CHECK_GT(kept, 19'500U);
    CHECK_LT(kept, 20'000U);  // the other one is tried now and then

    Holds slower;
    Trial back(slower, 125, chance);
    back.run(1'000);
    const std::size_t left = back.run(20'000);
    CHECK_LT(left, 500U);
    CHECK_GT(left, 0U);
  }
}

TEST_CASE("a comparison is sure after two equal gains, and never below two percent") {
  Comparison comparison;
  comparison.add(0.1);
  CHECK_FALSE(comparison.is_sure());
  comparison.add(0.1);
  CHECK(comparison.prefers_alternative());
  CHECK_FALSE(comparison.reversed().prefers_alternative());
  CHECK(comparison.reversed().is_sure());
  Comparison small;
  for (std::size_t i = 0; i < policy::kComparisons; ++i) {
    CHECK_FALSE(small.is_decided());
    small.add(0.019);
  }
  CHECK(small.is_decided());
  CHECK_FALSE(small.is_sure());
}

TEST_CASE("a clear difference is decided within two comparisons") {
  Holds trial;
  Trial course(trial, 80);
  course.run(120);  // five rounds of 24
  CHECK(trial.use_alternative());
}

TEST_CASE("a trial notices that the other policy has become better") {
  Holds trial;
  Trial(trial, 80).run(20'000);
  CHECK(trial.use_alternative());
  Trial(trial, 125).run(20'000);
  CHECK_FALSE(trial.use_alternative());
}

TEST_CASE("a gain below two percent changes nothing") {
  Holds trial;
  CHECK_LT(Trial(trial, 98.5).run(20'000), 1'000U);
}

TEST_CASE("rounds in which the policies did not differ are not compared") {
  Holds trial;
  CHECK_EQ(Trial(trial, 50, 0.5, false).run(10'000), 0U);
}

TEST_CASE("chance seldom changes the policy") {
  for (const double chance : {0.1, 0.3, 0.5}) {
    CAPTURE(chance);
    Holds trial;
    CHECK_LT(Trial(trial, 103, chance).run(20'000), 5'000U);
  }
}

TEST_CASE("one round in which everything stood still decides nothing") {
  Holds trial;
  Trial course(trial, 115);
  course.run(5'000);
  trial.record_batch(1'000'000'000, 16);
  CHECK_LT(course.run(5'000), 400U);
}

TEST_CASE("alternatives are tried in turn, and the way back from an adopted one is not tried at once") {
  PolicyTrial trial;
  std::size_t instances = 1, tried_holds = 0, tried_more = 0, tried_fewer = 0;
  for (std::size_t i = 0; i < 24 * 12; ++i) {
    const bool holds = trial.trying() == PolicyTrial::kHold, more = trial.trying() == PolicyTrial::kMoreInstances;
    const bool fewer = trial.trying() == PolicyTrial::kFewerInstances;
    tried_holds += holds;
    tried_more += more;
    tried_fewer += fewer;
    trial.note_difference(PolicyTrial::kHold);
    trial.note_difference(instances == 1 ? PolicyTrial::kMoreInstances : PolicyTrial::kFewerInstances);
    const bool two = (instances == 2) != (more || fewer);
    const std::optional<PolicyTrial::Alternative> adopted =
        trial.record_batch({100'000.0 + 10'000 * holds, two ? 50'000.0 : 100'000.0, 1});
    if (adopted == PolicyTrial::kMoreInstances) instances = 2;
    CHECK((!adopted || adopted == PolicyTrial::kMoreInstances));
  }
  CHECK_EQ(instances, 2U);
  CHECK_EQ(tried_more, 48U);
  CHECK_EQ(tried_holds, 48U);
  CHECK_EQ(tried_fewer, 0U);
}
