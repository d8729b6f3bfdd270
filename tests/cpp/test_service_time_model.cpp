// ServiceTimeModel: the line through what batches took.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <vector>

#include "schedule/service_time_model.hpp"

using namespace hami;

namespace {

constexpr double kOneMs = 1'000'000;

Nanoseconds milliseconds(double count) { return static_cast<Nanoseconds>(count * kOneMs); }
bool is_about(double value, double wanted) { return std::abs(value - wanted) <= 0.01 * wanted; }

ServiceTimeModel taught(std::initializer_list<std::size_t> sizes, const std::function<double(std::size_t)>& time,
                        int times = 3) {
  ServiceTimeModel model;
  for (int i = 0; i < times; ++i)
    for (std::size_t size : sizes) model.add(size, milliseconds(time(size)));
  return model;
}

}  // namespace

TEST_CASE("nothing is known until batches of two sizes were run three times") {
  ServiceTimeModel model;
  for (std::size_t items : {1, 1, 1, 4, 5}) model.add(items, milliseconds(1));
  CHECK_FALSE(model.line().has_value());
  model.add(5, milliseconds(1));  // about the same size as 4
  CHECK(model.line().has_value());
}

TEST_CASE("a line is found again") {
  const ServiceTimeModel model =
      taught({1, 2, 5, 8, 16}, [](std::size_t items) { return 4 + 0.2 * static_cast<double>(items); });
  REQUIRE(model.line().has_value());
  CHECK(is_about(model.line()->overhead / kOneMs, 4));
  CHECK(is_about(model.line()->per_item / kOneMs, 0.2));
  CHECK(is_about(model.line()->of(10) / kOneMs, 6));
}

TEST_CASE("the first run of a size teaches nothing") {
  ServiceTimeModel model;
  for (int i = 0; i < 3; ++i)
    for (std::size_t items : {1, 8}) model.add(items, milliseconds(i == 0 ? 1000 : static_cast<double>(items)));
  REQUIRE(model.line().has_value());
  CHECK(is_about(model.line()->per_item / kOneMs, 1));
}

TEST_CASE("a batch without items teaches nothing") {
  ServiceTimeModel model = taught({1, 8}, [](std::size_t items) { return 1 + static_cast<double>(items); });
  const double before = *model.of(8);
  for (int i = 0; i < 10; ++i) model.add(0, milliseconds(1000));
  CHECK_EQ(*model.of(8), before);
}

TEST_CASE("neither part of the cost is below zero") {
  const ServiceTimeModel grows = taught({1, 8}, [](std::size_t items) { return static_cast<double>(items * items); });
  REQUIRE(grows.line().has_value());
  CHECK_EQ(grows.line()->overhead, 0);
  CHECK_GT(grows.line()->per_item, 0);
  const ServiceTimeModel shrinks = taught({1, 8}, [](std::size_t items) { return items == 1 ? 9.0 : 1.0; });
  REQUIRE(shrinks.line().has_value());
  CHECK_EQ(shrinks.line()->per_item, 0);
  CHECK_GT(shrinks.line()->overhead, 0);
}

TEST_CASE("an interrupted run moves the model a little, a lasting change moves it all the way") {
  const auto line = [](std::size_t items) { return 1 + static_cast<double>(items); };
  ServiceTimeModel model = taught({1, 8}, line, 20);
  model.add(8, milliseconds(10'000));
  CHECK_LT(model.line()->of(8) / kOneMs, 14);
  for (int i = 0; i < 200; ++i)
    for (std::size_t items : {1, 8}) model.add(items, milliseconds(3 * line(items)));
  CHECK(is_about(model.line()->overhead / kOneMs, 3));
  CHECK(is_about(model.line()->per_item / kOneMs, 3));
}

TEST_CASE("a machine that is busy with other things does not make batches look dear") {
  // Every other run takes up to three times as long.
  ServiceTimeModel model;
  std::uint64_t seed = 1;
  const auto line = [](std::size_t items) { return 6 + 0.3 * static_cast<double>(items); };
  for (int i = 0; i < 200; ++i)
    for (std::size_t items : {1, 4, 16}) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const double others = seed >> 63 ? 2 * static_cast<double>(seed >> 33 & 0xffff) / 0xffff : 0;
      model.add(items, milliseconds(line(items) * (1 + others)));
    }
  for (std::size_t items : {1, 4, 16}) {
    CHECK_GE(*model.of(items) / kOneMs, line(items));
    CHECK_LT(*model.of(items) / kOneMs, 1.35 * line(items));
  }
}

TEST_CASE("the service time of a size is estimated from the nearest measured size") {
  CHECK_FALSE(ServiceTimeModel().of(1).has_value());
  const ServiceTimeModel one = taught({4}, [](std::size_t) { return 8.0; });
  CHECK(is_about(*one.of(1) / kOneMs, 2));  // one size alone does not show the fixed part
  // Padded to the next power of four: no line.
  const ServiceTimeModel steps = taught({1, 4, 16}, [](std::size_t items) {
    return items > 4 ? 9.0 : items > 1 ? 5.0 : 4.0;
  });
  CHECK(is_about(*steps.of(4) / kOneMs, 5));
  CHECK(is_about(*steps.of(16) / kOneMs, 9));
  CHECK_GT(*steps.of(32), *steps.of(16));
}

TEST_CASE("batches grow for as long as that pays") {
  const auto grown = [](std::size_t max_items, const std::function<double(std::size_t)>& time) {
    ServiceTimeModel model;
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 40; ++i) {
      const std::size_t next = std::max<std::size_t>(1, model.target_batch_size(1, max_items).items);
      if (sizes.empty() || sizes.back() != next) sizes.push_back(next);
      model.add(next, milliseconds(time(next)));
    }
    return sizes;
  };
  using Sizes = std::vector<std::size_t>;
  const auto line = [](double overhead, double per_item) {
    return [=](std::size_t items) { return overhead + per_item * static_cast<double>(items); };
  };
  CHECK((grown(32, line(6, 0.3)) == Sizes{1, 2, 4, 8, 16, 32}));
  CHECK((grown(24, line(6, 0.3)) == Sizes{1, 2, 4, 8, 24}));
  CHECK((grown(1, line(6, 0.3)) == Sizes{1}));
  // Nothing gained: two items are the most that is ever tried.
  CHECK((grown(32, line(0, 3)) == Sizes{1, 2, 1}));
  CHECK((grown(32, line(0.05, 3)) == Sizes{1, 2, 1}));
  // Two items cost 3 % less each than one, four only 1.6 % less than two.
  CHECK((grown(32, line(0.2, 3)) == Sizes{1, 2, 4, 2}));
  // Dearer by the item from some size on: one step too far, and back.
  CHECK((grown(32, [](std::size_t items) { return items > 4 ? 5.0 * static_cast<double>(items) : 4.0; }) ==
         Sizes{1, 2, 4, 8, 4}));
}

TEST_CASE("batches that began large shrink where that costs nothing") {
  ServiceTimeModel model;
  std::size_t next = 16;
  for (int i = 0; i < 30; ++i) {
    model.add(next, milliseconds(3.0 * static_cast<double>(next)));
    if (const TargetSize aim = model.target_batch_size(1, 16); aim.items > 0) next = aim.items;
  }
  CHECK_EQ(next, 1u);
  // The smallest that an instance takes is where it ends.
  ServiceTimeModel four;
  for (int i = 0; i < 3; ++i) four.add(8, milliseconds(8));
  CHECK_EQ(four.target_batch_size(4, 16).items, 4u);
  for (int i = 0; i < 3; ++i) four.add(4, milliseconds(4));
  CHECK_EQ(four.target_batch_size(4, 16).items, 4u);
}

TEST_CASE("among the sizes that were seen the smallest is taken whose items cost about the least") {
  CHECK_EQ(ServiceTimeModel().target_batch_size(1, 8).items, 0u);
  const ServiceTimeModel overhead = taught({1, 2, 4, 8}, [](std::size_t) { return 5.0; });
  CHECK_EQ(overhead.target_batch_size(1, 8).items, 8u);
  CHECK_EQ(overhead.target_batch_size(1, 4).items, 4u);  // what an instance takes at most
  CHECK_EQ(taught({1, 2, 4, 8}, [](std::size_t items) { return 100.0 * static_cast<double>(items) + 1; })
               .target_batch_size(1, 8)
               .items,
           1u);
  CHECK_EQ(taught({1, 2, 4, 8}, [](std::size_t items) { return 4.0 * std::max<double>(2, static_cast<double>(items)); })
               .target_batch_size(1, 8)
               .items,
           2u);
}
