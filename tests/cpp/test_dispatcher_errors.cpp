// A backend fails: which requests fail with it, which are tried again, and the state that a second try starts from.
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// Spoils what it was given, then throws if it is not alone or holds a 2.
void picky(Seen& seen, Batch batch, bool final_error) {
  seen.add(batch);
  bool bad = false;
  for (Request* request : batch) {
    bad = bad || number(*request) == 2;
    CHECK_FALSE(request->dict.contains("spoilt"));
    CHECK_FALSE(request->dict.contains(kResult));
    add(Batch(&request, 1), 100);
    request->dict.set("spoilt", Value(true));
    request->dict.set(kData, Value("spoilt"));
    request->dict.erase("keep");
  }
  if (bad) throw Error(ErrorCode::kRequest, "a 2 was there", {}, final_error);
}

struct Run {
  std::vector<CallResult> outcomes;
  Rows batches;
  std::uint64_t retried = 0;
};

Run run_three(Keys keys, const Traits& traits, bool final_error = false) {
  const auto seen = std::make_shared<Seen>();
  define("TestPicky", [=](Batch batch, const Params&) { picky(*seen, batch, final_error); }, {traits, {1, 8}, ""});
  keys.emplace_back("backend", "TestPicky");
  TestPipe pipe(std::move(keys));
  std::vector<Dict> dicts = requests_of({1, 2, 3});
  for (Dict& dict : dicts) dict.enter("keep", Value("kept"));
  Run run;
  run.outcomes = pipe.call_many(std::move(dicts));
  run.batches = seen->batches();
  run.retried = pipe->stats().at("n").retried;
  return run;
}

}  // namespace

TEST_CASE("one bad request does not fail the others of its batch, which are tried again with their original values") {
  const Run run = run_three({}, own_thread());
  CHECK(run.batches == Rows{{1, 2, 3}, {1}, {2}, {3}});
  CHECK_EQ(run.outcomes[0].number(), 101);
  CHECK_EQ(run.outcomes[1].message, "a 2 was there");
  CHECK_EQ(run.outcomes[2].number(), 103);
  CHECK_EQ(run.retried, 3u);
}

TEST_CASE("a failed batch fails whole where the node, the class or the error says so") {
  const auto all_fail = [](const Run& run) {
    CHECK(run.batches == Rows{{1, 2, 3}});
    for (const CallResult& one : run.outcomes) CHECK_EQ(one.message, "a 2 was there");
    CHECK_EQ(run.retried, 0u);
  };
  all_fail(run_three({{"on_batch_error", "fail"}}, own_thread()));
  all_fail(run_three({}, Traits{ThreadMode::kDedicated, false, false}));
  all_fail(run_three({}, own_thread(), true));
}

TEST_CASE("an error says in which backend and which node it was raised") {
  const Run run = run_three({}, own_thread());
  CHECK(run.outcomes[1].notes == std::vector<std::string>{"backend TestPicky", "node \"n\""});
}

TEST_CASE("a request that its backend failed is not tried again, nor are its neighbours") {
  const auto seen = std::make_shared<Seen>();
  define("TestFailsOne", [=](Batch batch, const Params&) {
    seen->add(batch);
    add(batch, 1);
    batch[0].fail(Error(ErrorCode::kRequest, "this one"));
  }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestFailsOne"}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({1, 2}));
  CHECK_EQ(outcomes[0].message, "this one");
  CHECK_EQ(outcomes[1].number(), 3);
  CHECK(seen->batches() == Rows{{1, 2}});
}

TEST_CASE("a request that failed before its batch did keeps its own error") {
  define("TestFailsOneThenAll", [](Batch batch, const Params&) {
    if (batch.size() == 1) return add(batch, 1);
    batch[0].fail(Error(ErrorCode::kRequest, "this one"));
    throw Error(ErrorCode::kRequest, "all");
  }, {own_thread(), {1, 8}, ""});
  TestPipe pipe({{"backend", "TestFailsOneThenAll"}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({1, 2}));
  CHECK_EQ(outcomes[0].message, "this one");
  CHECK_EQ(outcomes[1].number(), 3);
}

TEST_CASE("anything that a backend throws becomes the outcome, and the node continues") {
  int calls = 0;
  define("TestThrows", [&](Batch batch, const Params&) {
    switch (++calls) {
      case 1: throw 7;
      case 2: throw std::bad_alloc();
      case 3: return;  // leaves no result
      default: add(batch, 1);
    }
  }, {own_thread(), {}, ""});
  TestPipe pipe({{"backend", "TestThrows"}});
  CHECK_EQ(pipe.call(Value(1)).message, "an exception that does not derive from std::exception");
  CHECK_EQ(pipe.call(Value(1)).message, "out of memory");
  const CallResult none = pipe.call(Value(1));
  CHECK(none.code == ErrorCode::kNoResult);
  CHECK_EQ(none.message, "the pipeline left no `result`");
  CHECK_EQ(pipe.call(Value(1)).number(), 2);
  CHECK_EQ(pipe->stats().at("n").failed.load(), 2u);
}

TEST_CASE("a stale result is never returned") {
  define("TestFails", [](Batch, const Params&) { throw Error(ErrorCode::kRequest, "no"); });
  TestPipe pipe({{"backend", "TestFails"}});
  Dict dict = request_of(Value(1));
  dict.enter("result", Value(5));
  CHECK_FALSE(pipe.call(std::move(dict)).good);
  define("TestSilent", [](Batch, const Params&) {});
  TestPipe silent({{"backend", "TestSilent"}});
  Dict stale = request_of(Value(1));
  stale.enter("result", Value(5));
  CHECK(silent.call(std::move(stale)).code == ErrorCode::kNoResult);
}
