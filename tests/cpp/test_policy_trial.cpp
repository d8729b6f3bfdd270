// PolicyTrial: which of two ways is kept to, by what each gets done.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "schedule/policy_trial.hpp"

using namespace hami;

namespace {

// Runs batches that take 100 by the first way, and by the second what is given; more or less by chance.
class Course {
 public:
  Course(PolicyTrial& ways, double use_alternative, double chance = 0, bool note_difference = true)
      : ways_(ways), second_(use_alternative), chance_(chance), differ_(note_difference) {}

  // Of so many batches those that ran by the second way.
  std::size_t run(std::size_t batches) {
    std::size_t by_second = 0;
    for (std::size_t i = 0; i < batches; ++i) {
      by_second += ways_.use_alternative();
      if (differ_) ways_.note_difference();
      const double took = (ways_.use_alternative() ? second_ : 100) * (1 + chance_ * by_chance());
      ways_.record_batch(static_cast<Nanoseconds>(1000 * took), 16);
    }
    return by_second;
  }

 private:
  // Of standard deviation 1, and the same numbers with every library, as those of std::normal_distribution are not.
  double by_chance() { return std::sqrt(3.0) * (2 * static_cast<double>(random_()) / 4294967295.0 - 1); }

  PolicyTrial& ways_;
  const double second_, chance_;
  const bool differ_;
  std::mt19937 random_{1};
};

}  // namespace

TEST_CASE("the faster way is found and kept to, and the other one tried now and then") {
  for (const double chance : {0.0, 0.1, 0.3}) {
    CAPTURE(chance);
    PolicyTrial faster;
    Course course(faster, 90, chance);
    course.run(2'000);
    const std::size_t by_second = course.run(20'000);
    CHECK_GT(by_second, 19'400U);
    CHECK_LT(by_second, 20'000U);

    PolicyTrial slower;
    Course back(slower, 110, chance);
    back.run(2'000);
    const std::size_t by_slower = back.run(20'000);
    CHECK_LT(by_slower, 600U);
    CHECK_GT(by_slower, 0U);
  }
}

TEST_CASE("a change of what is faster is seen") {
  PolicyTrial ways;
  Course(ways, 80).run(20'000);
  CHECK(ways.use_alternative());
  Course(ways, 120).run(20'000);
  CHECK_FALSE(ways.use_alternative());
}

TEST_CASE("the second way is left for less than it is taken for") {
  PolicyTrial first, use_alternative(true);
  CHECK(use_alternative.use_alternative());
  Course hardly_better(first, 98), hardly_worse(use_alternative, 102);
  CHECK_LT(hardly_better.run(20'000), 1'000U);
  CHECK_LT(hardly_worse.run(20'000), 1'000U);
}

TEST_CASE("what does not differ is not compared: it would tell of the load alone") {
  PolicyTrial ways;
  CHECK_EQ(Course(ways, 50, 0.5, false).run(10'000), 0U);
}

TEST_CASE("chance seldom changes anything, and a gain that is hardly one never does") {
  for (const double chance : {0.1, 0.3, 0.5}) {
    CAPTURE(chance);
    PolicyTrial ways;
    CHECK_LT(Course(ways, 100, chance).run(20'000), 5'000U);
  }
  PolicyTrial ways;
  CHECK_LT(Course(ways, 99).run(20'000), 1'000U);
}

TEST_CASE("a turn in which everything stood still for once decides nothing") {
  PolicyTrial ways;
  Course course(ways, 110);
  course.run(5'000);
  ways.record_batch(1'000'000'000, 16);
  CHECK_LT(course.run(5'000), 400U);
}
