// request_cost: a key of each request says what it costs, and requests of equal cost share a batch.
#include <vector>

#include "pipes.hpp"
#include "schedule/api.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

Dict sized(std::int64_t data, Value size) {
  Dict dict = request_of(Value(data));
  dict.enter("size", std::move(size));
  return dict;
}

}  // namespace

TEST_CASE("until times are known, requests of equal cost share a batch in their order, and the costs are counted") {
  Gated gated("TestGatedCosts", {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestGatedCosts"}, {"request_cost", "size"}, {"max", 8}});
  TestPipe::Pending first = pipe.submit(sized(0, 1));
  gated.gate->arrived.wait_for(1);
  std::vector<TestPipe::Pending> later;
  std::int64_t data = 0;
  for (const Value& size : {Value(9), Value(5.5), Value(9)}) later.push_back(pipe.submit(sized(++data, size)));
  gated.gate->open();
  CHECK_EQ(first.wait().number(), 100);
  for (std::size_t i = 0; i < later.size(); ++i) CHECK_EQ(later[i].wait().number(), 101 + static_cast<std::int64_t>(i));
  CHECK_EQ(gated.seen->batches(), (Rows{{0}, {1, 3}, {2}}));
  const NodeStats& stats = pipe->stats().at("n");
  CHECK_EQ(stats.policy.cost.load(), 24.5);
  CHECK_EQ(stats.policy.padded_cost.load(), 24.5);
}

TEST_CASE("a request whose cost is not a positive number fails alone, and never runs") {
  Seen seen;
  define("TestSeesCosts", [&](Batch batch, const Params&) {
    seen.add(batch);
    add(batch, 100);
  }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestSeesCosts"}, {"request_cost", "size"}, {"max", 8}});
  std::vector<Dict> dicts = requests_of({1});
  dicts.push_back(sized(2, 3));
  dicts.push_back(sized(3, 0));
  const std::vector<CallResult> outcomes = pipe.call_many(std::move(dicts));
  CHECK_EQ(outcomes[1].number(), 102);
  for (const std::size_t wrong : {0, 2}) {
    CHECK(outcomes[wrong].code == ErrorCode::kRequest);
    CHECK_NE(outcomes[wrong].message.find("a positive number as its key \"size\""), std::string::npos);
  }
  CHECK_EQ(seen.batches(), (Rows{{2}}));
  CHECK_EQ(pipe->stats().at("n").policy.cost.load(), 3);
}

TEST_CASE("an empty request_cost means that requests have none") {
  define("TestCostsNothing", [](Batch batch, const Params&) { add(batch, 100); }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestCostsNothing"}, {"request_cost", ""}, {"max", 8}});
  CHECK_EQ(pipe.call(Value(1)).number(), 101);
  CHECK_EQ(pipe->stats().at("n").policy.cost.load(), 0);
}
