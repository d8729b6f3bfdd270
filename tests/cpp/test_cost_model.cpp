// CostModel: the line through what batches took.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <initializer_list>

#include "schedule/cost_model.hpp"

using namespace hami;

namespace {

constexpr double kMs = 1'000'000;

Nanoseconds milliseconds(double count) { return static_cast<Nanoseconds>(count * kMs); }
bool is_about(double value, double wanted) { return std::abs(value - wanted) <= 0.01 * wanted; }

CostModel taught(std::initializer_list<std::size_t> sizes, const std::function<double(std::size_t)>& time, int times = 3) {
  CostModel model;
  for (int i = 0; i < times; ++i)
    for (std::size_t size : sizes) model.add(size, milliseconds(time(size)));
  return model;
}

}  // namespace

TEST_CASE("nothing is known until batches of two sizes were run twice") {
  CostModel model;
  model.add(1, milliseconds(1));
  model.add(1, milliseconds(1));
  model.add(4, milliseconds(1));
  CHECK_FALSE(model.cost().has_value());
  model.add(5, milliseconds(1));  // about the same size as 4
  CHECK(model.cost().has_value());
}

TEST_CASE("a line is found again") {
  const CostModel model = taught({1, 2, 5, 8, 16}, [](std::size_t items) { return 4 + 0.2 * static_cast<double>(items); });
  REQUIRE(model.cost().has_value());
  CHECK(is_about(model.cost()->fixed / kMs, 4));
  CHECK(is_about(model.cost()->item / kMs, 0.2));
  CHECK(is_about(model.cost()->of(10) / kMs, 6));
}

TEST_CASE("the first run of a size teaches nothing") {
  CostModel model;
  for (int i = 0; i < 3; ++i)
    for (std::size_t items : {1, 8}) model.add(items, milliseconds(i == 0 ? 1000 : static_cast<double>(items)));
  REQUIRE(model.cost().has_value());
  CHECK(is_about(model.cost()->item / kMs, 1));
}

TEST_CASE("neither part of the cost is below zero") {
  const CostModel grows = taught({1, 8}, [](std::size_t items) { return static_cast<double>(items * items); });
  REQUIRE(grows.cost().has_value());
  CHECK_EQ(grows.cost()->fixed, 0);
  CHECK_GT(grows.cost()->item, 0);
  const CostModel shrinks = taught({1, 8}, [](std::size_t items) { return items == 1 ? 9.0 : 1.0; });
  REQUIRE(shrinks.cost().has_value());
  CHECK_EQ(shrinks.cost()->item, 0);
  CHECK_GT(shrinks.cost()->fixed, 0);
}

TEST_CASE("an interrupted run moves the model a little, a lasting change moves it all the way") {
  const auto line = [](std::size_t items) { return 1 + static_cast<double>(items); };
  CostModel model = taught({1, 8}, line, 20);
  model.add(8, milliseconds(10'000));
  CHECK_LT(model.cost()->of(8) / kMs, 14);
  for (int i = 0; i < 200; ++i)
    for (std::size_t items : {1, 8}) model.add(items, milliseconds(3 * line(items)));
  CHECK(is_about(model.cost()->fixed / kMs, 3));
  CHECK(is_about(model.cost()->item / kMs, 3));
}

TEST_CASE("the worthwhile batch is small where items cost, large where batches do") {
  CHECK_EQ((Cost{0, 5}.worthwhile(8)), 1u);
  CHECK_EQ((Cost{5, 0}.worthwhile(8)), 8u);
  CHECK_EQ((Cost{5, 0}.worthwhile(1)), 1u);
  CHECK_EQ((Cost{20, 1}.worthwhile(8)), 8u);
  CHECK_EQ((Cost{1, 10}.worthwhile(8)), 1u);  // within what is noise
  for (const Cost& cost : {Cost{1, 1}, Cost{1, 8}, Cost{7, 3}, Cost{100, 1}}) {
    for (std::size_t most : {2u, 8u, 100u}) {
      const auto each = [&](std::size_t items) { return cost.of(items) / static_cast<double>(items); };
      const std::size_t chosen = cost.worthwhile(most);
      CHECK_LE(each(chosen), 1.02 * each(most) * 1.000001);
      if (chosen > 1 && chosen < most) CHECK_GT(each(chosen - 1), 1.02 * each(most));
    }
  }
}
