// HasKey, NotHasKey, Filter, LoopCondition and ModelLoader: which item runs on which request, in which order, and which request
// fails.
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// Adds to `data` and records its batches. Fails only a request of 13; throws if the batch contains a 99.
std::shared_ptr<Seen> define_adding(const std::string& name, std::int64_t step, Range range = {1, 8}) {
  auto seen = std::make_shared<Seen>();
  define(name, [=](Batch batch, const Params&) {
    seen->add(batch);
    for (Request* request : batch)
      if (number(*request) == 99) throw Error(ErrorCode::kRequest, name + " meets 99");
    for (Request* request : batch) {
      if (number(*request) == 13)
        request->fail(Error(ErrorCode::kRequest, name + " meets 13"));
      else
        answer(*request, Value(number(*request) + step));
    }
  }, {{}, range, ""});
  return seen;
}

// Requests of 10 and more have the key.
std::vector<Dict> keyed(const std::vector<std::int64_t>& numbers) {
  std::vector<Dict> dicts = requests_of(numbers);
  for (std::size_t i = 0; i < dicts.size(); ++i)
    if (numbers[i] >= 10) dicts[i].enter("k", Value());
  return dicts;
}

std::string max_error(const char* backend) {
  try {
    TestPipe pipe({{"backend", backend}, {"max", 1000}});
    return "any";
  } catch (const Error& error) {
    return error.message();
  }
}

std::string takes_at_most(int count) {
  return "max is 1000; the backend of node \"n\" takes at most " + std::to_string(count);
}

}  // namespace

TEST_CASE("HasKey selects an item for each request of a batch, and keeps their order") {
  const auto with = define_adding("TestWith", 100), without = define_adding("TestWithout", 1000);
  TestPipe pipe({{"backend", "HasKey(k)[TestWith,TestWithout]"}, {"max", 8}});
  CHECK_EQ(outcomes_of(pipe.call_many(keyed({1, 10, 2, 11}))), "1001, 110, 1002, 111");
  CHECK(with->batches() == Rows{{10, 11}});
  CHECK(without->batches() == Rows{{1, 2}});
  CHECK_EQ(outcomes_of(pipe.call_many(keyed({3}))), "1003");
  CHECK(with->batches().size() == 1);  // no backend is called with an empty batch
}

TEST_CASE("without a second item, and for NotHasKey, the other requests pass unchanged") {
  const auto seen = define_adding("TestWith", 100);
  TestPipe has({{"backend", "HasKey(k)[TestWith]"}, {"max", 8}});
  CHECK_EQ(outcomes_of(has.call_many(keyed({1, 10}))), "1, 110");
  TestPipe has_not({{"backend", "NotHasKey(k)[TestWith]"}, {"max", 8}});
  CHECK_EQ(outcomes_of(has_not.call_many(keyed({1, 10}))), "101, 10");
  CHECK_EQ(has.call(Dict()).message, "the request has no `data`");
}

TEST_CASE("a request that fails in an item does not fail its batch") {
  define_adding("TestWith", 100);
  define_adding("TestWithout", 1000);
  TestPipe pipe({{"backend", "S[HasKey(k)[TestWith,TestWithout],TestWith]"}, {"max", 8}});
  CHECK_EQ(outcomes_of(pipe.call_many(keyed({1, 10, 13, 2}))), "1101, 210, TestWith meets 13, 1102");
  // An item that throws fails all of its requests. They run again one by one, and only one fails.
  CHECK_EQ(outcomes_of(pipe.call_many(keyed({1, 10, 99, 2}))), "1101, 210, TestWith meets 99, 1102");
  TestPipe strict({{"backend", "HasKey(k)[TestWith,TestWithout]"}, {"max", 8}, {"on_batch_error", "fail"}});
  CHECK_EQ(outcomes_of(strict.call_many(keyed({99, 1}))), "TestWith meets 99, TestWith meets 99");
}

TEST_CASE("a decision has the range of the item with the smallest max above 1") {
  define_adding("TestEight", 1, {1, 8});
  define_adding("TestFour", 1, {1, 4});
  define_adding("TestOne", 1, {1, 1});
  CHECK_EQ(max_error("HasKey(k)[TestEight,TestFour]"), takes_at_most(4));
  CHECK_EQ(max_error("HasKey(k)[TestEight,TestOne]"), takes_at_most(8));
  CHECK_EQ(max_error("HasKey(k)[TestFour]"), takes_at_most(4));
  CHECK_EQ(max_error("NotHasKey(k)[TestFour]"), takes_at_most(4));
  CHECK_EQ(max_error("Filter[TestFour,TestEight]"), takes_at_most(4));
  CHECK_EQ(max_error("Filter[TestOne,TestEight]"), takes_at_most(8));
  CHECK_EQ(max_error("LoopCondition[TestFour]"), takes_at_most(4));
  CHECK_EQ(max_error("HasKey(k)[Identity,Identity]"), "any");
}

TEST_CASE("a filter decides on copies, and a failure of the decision fails only its request") {
  const auto asked = std::make_shared<Seen>();
  define("TestSmall", [=](Batch batch, const Params&) {
    asked->add(batch);
    for (Request* request : batch) {
      if (number(*request) == 7) request->fail(Error(ErrorCode::kRequest, "no 7"));
      if (number(*request) == 8) continue;
      answer(*request, number(*request) == 9 ? Value(9) : Value(number(*request) < 5));
      request->dict.set("data", Value(0));
      request->dict.set("seen", Value(true));
    }
  }, {{}, {1, 8}, ""});
  const auto seen = define_adding("TestWith", 100);
  TestPipe pipe({{"backend", "Filter[TestSmall,TestWith]"}, {"max", 8}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({1, 7, 6, 8, 9, 2}));
  CHECK_EQ(outcomes_of(outcomes),
           "101, no 7, 6, TestSmall left no `result`, Filter takes a bool from TestSmall, got int, 102");
  CHECK(outcomes[3].code == ErrorCode::kNoResult);
  CHECK(outcomes[4].code == ErrorCode::kDataType);
  CHECK_FALSE(outcomes[0].dict.contains("seen"));
  CHECK(asked->batches() == Rows{{1, 7, 6, 8, 9, 2}});
  CHECK(seen->batches() == Rows{{1, 2}});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({13, 1}))),
           "13, 101");  // over 5: it never reaches the backend that fails
}

TEST_CASE("each request of a batch leaves the loop on its own, a failed one with its error") {
  const auto seen = std::make_shared<Seen>();
  define("TestCountsDown", [=](Batch batch, const Params&) {
    seen->add(batch);
    for (Request* request : batch) {
      const std::int64_t left = number(*request) - 1;
      if (left == 13) request->fail(Error(ErrorCode::kRequest, "fell over 13"));
      if (left == 20) continue;  // a request without result cannot continue
      answer(*request, Value(left));
      request->dict.set("again", Value(left % 10 != 0));
    }
  }, {{}, {1, 8}, ""});
  TestPipe pipe({{"backend", "LoopCondition[TestCountsDown]"}, {"max", 8}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({1, 3, 15, 22, 2}));
  CHECK_EQ(outcomes_of(outcomes), "0, 0, fell over 13, the pipeline left no `result`, 0");
  CHECK(outcomes[3].code == ErrorCode::kNoResult);
  CHECK(seen->batches() == Rows{{1, 3, 15, 22, 2}, {2, 14, 21, 1}, {1}});
}

TEST_CASE("a loop ends early when the caller cancels its request") {
  Latch rounds;
  define("TestRounds", [&](Batch batch, const Params&) {
    rounds.add();
    add(batch, 1);
  });
  TestPipe pipe({{"backend", "LoopCondition(until=time,time=1h,count=1000000000)[TestRounds]"}});
  TestPipe::Pending pending = pipe.submit(Value(0));
  rounds.wait_for(3);
  pending.call->give_up(Error(ErrorCode::kCancelled, "left"));
  CHECK_EQ(pending.wait().message, "left");
  CHECK(pipe.close().empty());  // the backend has returned
}

TEST_CASE("until=instance continues while no instance is free") {
  const Gated gated("TestGated", {{}, {}, ""});
  Latch rounds;
  define("TestRounds", [&](Batch batch, const Params&) {
    rounds.add();
    add(batch, 1);
  });
  TestPipe pipe(
      {{"backend", "HasKey(hold)[TestGated,LoopCondition(until=instance,count=1000000000,time=1h)[TestRounds]]"},
       {"instance_num", 2}});
  Dict holding = request_of(Value(0));
  holding.enter("hold", Value(true));
  TestPipe::Pending held = pipe.submit(std::move(holding));
  gated.gate->arrived.wait_for(1);
  TestPipe::Pending looping = pipe.submit(Value(0));
  rounds.wait_for(3);
  CHECK_EQ(looping.done->count(), 0u);
  gated.gate->open();
  CHECK_EQ(held.wait().number(), 100);
  CHECK(looping.wait().number() >= 3);
}

TEST_CASE("a model loader builds only the item of the model's suffix") {
  define_adding("TestFour", 1, {1, 4});
  int made = 0;
  BackendClass cls;
  cls.name = "TestNeverMade";
  cls.params = parse_param_specs("precision: str = fp32");
  cls.create = [&made]() -> BackendPtr {
    ++made;
    return nullptr;
  };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
  const char* backend = "ModelLoader[(.trt)TestNeverMade,(.onnx)TestFour]";
  {
    TestPipe pipe({{"backend", backend}, {"model", "a.trt/b.onnx"}, {"precision", "fp16"}});  // a key of the other one
    CHECK_EQ(pipe.call(Value(1)).number(), 2);
  }
  CHECK_EQ(made, 0);
  try {
    TestPipe pipe({{"backend", backend}, {"model", "a.onnx"}, {"max", 5}});
    FAIL("the range is that of the item");
  } catch (const Error& error) {
    CHECK_EQ(error.message(), "max is 5; the backend of node \"n\" takes at most 4");
  }
}
