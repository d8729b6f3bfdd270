// CostModel: which batches teach it the time of a cost, and which of those that wait run next.
#include "schedule/cost_model.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "schedule/policy_constants.hpp"

using namespace hami;

namespace {

constexpr Nanoseconds kFixedCost = 1000;

bool is_the_time(double value, double wanted) { return std::abs(value - wanted) <= 1e-6 * wanted; }

// Batches of one item that take 1000 ns and `each` for their cost.
void teach_costs(CostModel& model, double first, double each, std::size_t batches = policy::kCostBatches) {
  for (std::size_t i = 0; i < batches; ++i) {
    const double cost = first * static_cast<double>(i + 1);
    model.learn(1, cost, kFixedCost + static_cast<Nanoseconds>(each * cost));
  }
}

Ref<Request> request_costing(double cost, Nanoseconds deadline = kNever) {
  Ref<Request> request = make_counted<Request>();
  request->cost = cost;
  request->deadline = deadline;
  return request;
}

}  // namespace

TEST_CASE("the time of a cost is known after eight batches of unequal cost") {
  CostModel model;
  teach_costs(model, 100, 3, policy::kCostBatches - 1);
  CHECK_FALSE(model.known());
  CHECK_EQ(model.to_usual(1, 800), 1);
  model.learn(1, 800, kFixedCost + 2400);
  REQUIRE(model.known());
  CHECK(is_the_time(model.time(1, 400), kFixedCost + 1200));
  CHECK_GT(model.to_usual(1, 800), 1);
  CHECK_LT(model.to_usual(1, 100), 1);
}

TEST_CASE("batches of equal cost and size teach no cost") {
  CostModel model;
  for (std::size_t i = 0; i < 4 * policy::kCostBatches; ++i) model.learn(2, 100, 5000);
  CHECK_FALSE(model.known());
}

TEST_CASE("a batch without items, or that took no time, teaches nothing") {
  CostModel model;
  for (std::size_t i = 0; i < 4 * policy::kCostBatches; ++i) {
    model.learn(0, 100.0 * static_cast<double>(i + 1), 5000);
    model.learn(1, 100.0 * static_cast<double>(i + 1), 0);
  }
  CHECK_FALSE(model.known());
}

TEST_CASE("a time that does not grow with the cost, and one that is all cost, stay at least zero") {
  CostModel equal, through_zero;
  for (std::size_t i = 1; i <= policy::kCostBatches; ++i) {
    equal.learn(1, 100.0 * static_cast<double>(i), 5000);
    // Less for small costs than any line through zero.
    through_zero.learn(1, 100.0 * static_cast<double>(i), static_cast<Nanoseconds>(i * i * i * 1000));
  }
  REQUIRE(equal.known());
  CHECK(is_the_time(equal.time(1, 10'000), 5000));
  REQUIRE(through_zero.known());
  CHECK_EQ(through_zero.time(1, 0), 0);
  CHECK_GT(through_zero.time(1, 800), 0);
}

TEST_CASE("a batch far from the usual cost does not count, and as many as learning needs are the new load") {
  CostModel model;
  teach_costs(model, 1, 3);
  REQUIRE(model.known());
  const double before = model.time(1, 4);
  const double far = 8 * policy::kFarCost;
  for (std::size_t i = 1; i < policy::kCostBatches; ++i) model.learn(1, far * static_cast<double>(i), 1'000'000'000);
  CHECK_EQ(model.time(1, 4), before);
  model.learn(1, 2, kFixedCost + 6);  // a usual one: those before were exceptions
  CHECK(model.known());
  teach_costs(model, far, 0.5, policy::kCostBatches);  // the last one begins the new load
  CHECK_FALSE(model.known());
  teach_costs(model, far, 0.5, policy::kCostBatches - 1);
  REQUIRE(model.known());
  CHECK(is_the_time(model.time(1, 4 * far), kFixedCost + 2 * far));
  CostModel other;  // a load that is far below the usual one is as far
  teach_costs(other, far, 0.5);
  for (std::size_t i = 1; i < policy::kCostBatches; ++i) other.learn(1, static_cast<double>(i), 1000);
  CHECK(is_the_time(other.time(1, 4 * far), kFixedCost + 2 * far));
}

TEST_CASE("of what waits, the batch with the least time per item runs, unless a request is due") {
  CostModel model;
  teach_costs(model, 100, 3);
  const auto choose = [&](Nanoseconds moment, Nanoseconds deadline) {
    model.clear();
    for (const double cost : {1000.0, 10.0, 10.0, 10.0, 1000.0})
      CHECK(model.add(*request_costing(cost, cost == 1000.0 ? deadline : kNever), moment));
    return model.choose(8);
  };
  const CostModel::Choice cheap = choose(0, kNever);
  CHECK_EQ(cheap.items, 3u);
  CHECK_EQ(cheap.least, 10);
  CHECK_EQ(cheap.most, 10);
  CHECK_EQ(choose(0, 1'000'000).items, 3u);
  CHECK_EQ(choose(0, 100).most, 1000);                 // by its deadline
  CHECK_EQ(choose(1'000'000'000, kNever).most, 1000);  // by its wait, as the first in order
}

TEST_CASE("requests of nearly equal cost share a batch, as each batch has a fixed time; others do not") {
  CostModel model;
  teach_costs(model, 100, 3);
  const auto choose = [&](double one, double other) {
    model.clear();
    for (const double cost : {one, other}) CHECK(model.add(*request_costing(cost), 0));
    return model.choose(8);
  };
  const CostModel::Choice near = choose(10, 12);
  CHECK_EQ(near.batches, 1u);
  CHECK_EQ(near.least, 10);
  CHECK_EQ(near.most, 12);
  CHECK(is_the_time(near.all, kFixedCost + 2 * 3 * 12));
  const CostModel::Choice far = choose(10, 10'000);
  CHECK_EQ(far.batches, 2u);
  CHECK_EQ(far.most, 10);
  CHECK(is_the_time(far.all, 2 * kFixedCost + 3 * 10 + 3 * 10'000));
}

TEST_CASE(
    "until times are known, only requests of the cost of the first one share a batch, and a batch has its limit") {
  CostModel model;
  for (const double cost : {7.0, 9.0, 7.0}) CHECK(model.add(*request_costing(cost), 0));
  const CostModel::Choice choice = model.choose(8);
  CHECK_EQ(choice.least, 7);
  CHECK_EQ(choice.most, 7);
  CHECK_EQ(choice.items, 8u);
  model.clear();
  teach_costs(model, 100, 3);
  for (int i = 0; i < 5; ++i) CHECK(model.add(*request_costing(100), 0));
  CHECK_LE(model.choose(2).items, 2u);
  model.clear();
  std::size_t added = 1;
  while (model.add(*request_costing(100), 0)) ++added;
  CHECK_EQ(added, policy::kRivals);
}

TEST_CASE("the padding of a batch is counted by its largest item") {
  CostModel model;
  RequestChain batch;
  batch.push(request_costing(10));
  batch.push(request_costing(30));
  CHECK_EQ(model.note_batch(batch), 30);
  CHECK_EQ(model.cost(), 40);
  CHECK_EQ(model.padded(), 60);
}
