// LoadGenerator: closed and open loops, failures, and the end of a load.
#include "pipe/load_generator.hpp"

#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

std::unique_ptr<LoadGenerator> start(TestPipe& pipe, const std::vector<std::int64_t>& data, LoadSpec spec) {
  return std::make_unique<LoadGenerator>(pipe->shared_from_this(), requests_of(data), std::move(spec));
}

}  // namespace

TEST_CASE("a closed loop makes exactly the calls that were asked for, after the warm-up") {
  TestPipe pipe({{"backend", "Identity"}});
  LoadSpec spec;
  spec.clients = 3;
  spec.warmup = 2;
  spec.calls = 40;
  const auto load = start(pipe, {1, 2}, spec);
  REQUIRE(load->wait(kNever));
  CHECK(load->result().calls == 40);
  CHECK(load->result().completed == 40);
  CHECK(load->result().good == 40);
  CHECK(load->result().failed.empty());
  CHECK(load->result().elapsed > 0);
  CHECK(pipe->stats().at("n").completed == 40 + 3 * 2);
}

TEST_CASE("a load counts the requests that fail by their kind and continues") {
  define("TestLoadFails", [](Batch batch, const Params&) {
    for (Request* request : batch)
      if (request->dict.find(kData)->as_int() == 0)
        request->fail(Error(ErrorCode::kRequest, "zero"));
      else
        request->dict.set(kResult, Value(true));
  });
  TestPipe pipe({{"backend", "TestLoadFails"}});
  LoadSpec spec;
  spec.calls = 100;
  const auto load = start(pipe, {0, 1}, spec);
  REQUIRE(load->wait(kNever));
  REQUIRE(load->result().failed.count("RequestError") == 1);
  const LoadResult::Failures& failures = load->result().failed.at("RequestError");
  CHECK(failures.example == "zero");
  CHECK(failures.count > 0);
  CHECK(load->result().completed + failures.count == 100);
}

TEST_CASE("an open loop starts every arrival and measures from the moment at which it was due") {
  TestPipe pipe({{"backend", "Identity"}});
  LoadSpec spec;
  spec.arrivals = {0, 1000, 1000, 2000000};
  const auto load = start(pipe, {1}, spec);
  REQUIRE(load->wait(kNever));
  CHECK(load->result().completed == 4);
  CHECK(load->result().elapsed >= 2000000);
}

TEST_CASE("a request that takes longer than the objective is not good") {
  TestPipe pipe({{"backend", "Identity"}});
  LoadSpec spec;
  spec.calls = 5;
  spec.objective = -1;
  const auto load = start(pipe, {1}, spec);
  REQUIRE(load->wait(kNever));
  CHECK(load->result().completed == 5);
  CHECK(load->result().good == 0);
}

TEST_CASE("a load of a closed pipe throws") {
  TestPipe pipe({{"backend", "Identity"}});
  pipe.close();
  LoadSpec spec;
  spec.clients = 2;
  spec.calls = 5;
  const auto load = start(pipe, {1}, spec);
  CHECK_THROWS_AS(load->wait(kNever), Error);
}

TEST_CASE("a load that is ended early leaves no client behind") {
  const auto gate = std::make_shared<Gate>();
  define("TestLoadGate", [gate](Batch batch, const Params&) {
    gate->pass();
    for (Request* request : batch) request->dict.set(kResult, Value(true));
  });
  TestPipe pipe({{"backend", "TestLoadGate"}});
  {
    LoadSpec spec;
    const auto load = start(pipe, {1}, spec);
    gate->arrived.wait_for(1);
    CHECK(!load->wait(kNoWait));
    gate->open();
  }
  CHECK(pipe.close().empty());
}
