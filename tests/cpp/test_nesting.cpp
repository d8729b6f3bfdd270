// How deep values nest: lists and dicts up to a limit, because code recurses over them; events and queues without a limit.
#include <string>

#include "pipes.hpp"
#include "plugin_errors.hpp"
#include "sync/event.hpp"
#include "sync/queue.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr const char* kTooDeep =
    "lists and dicts nest at most 1000 levels deep, got a deeper one or one that contains itself; "
    "flatten it, or pass it as text or bytes";
constexpr std::size_t kFarTooDeep = 200'000;  // for any stack

Value in_list(Value value) { return make_list({std::move(value)}); }
Value in_dict(Value value) { return make_dict({{"in", std::move(value)}}); }

Value nested(std::size_t times) {
  Value value(7);
  for (std::size_t i = 0; i < times; ++i) value = i % 2 == 0 ? in_list(std::move(value)) : in_dict(std::move(value));
  return value;
}

}  // namespace

TEST_CASE("lists and dicts nest 1000 deep, and no deeper") {
  const Value deepest = nested(kMaxNesting);
  CHECK_EQ(deepest.object()->nesting(), 1000u);
  CHECK_EQ(make_list({Value(1), deepest.as_dict().entries()[0].second, nested(3)}).object()->nesting(), 1000u);
  CHECK_THROWS_WITH_AS(in_list(deepest), kTooDeep, Error);
  CHECK_THROWS_WITH_AS(in_dict(deepest), kTooDeep, Error);
}

TEST_CASE("a plugin that exceeds the nesting limit gets an error that names it") {
  const hami_host& core = host_table();
  hami_value value{};
  for (std::size_t i = 0; i < kMaxNesting; ++i) {
    hami_value outer;
    REQUIRE(!core.list_new(&value, 1, &outer));
    if (value.kind != HAMI_NONE) core.object_release(value.as.o);
    value = outer;
  }
  hami_value refused;
  const hami_text key{"in", 2};
  CHECK(text_of_error(core.list_new(&value, 1, &refused)) == kTooDeep);
  CHECK(text_of_error(core.map_new(&key, &value, 1, &refused)) == kTooDeep);
  core.object_release(value.as.o);
}

TEST_CASE("a combined result that exceeds the nesting limit fails its request") {
  define("TestInList", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, in_list(*request->dict.find(kData)));
  });
  {
    TestPipe pipe({{"backend", "FanOut[TestInList]"}});
    CHECK_EQ(pipe.call(in_list(nested(998))).result().object()->nesting(), 1000u);
    CHECK_EQ(pipe.call(in_list(nested(999))).message, kTooDeep);
    CHECK(pipe.call(in_list(Value(1))).good);
  }
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "Identity"}, {"next", "b,c"}}},
                  {"b", {{"backend", "Identity"}}},
                  {"c", {{"backend", "Identity"}}}};
  TestPipe graph(config);
  CHECK_EQ(graph.call(nested(999)).result().object()->nesting(), 1000u);
  CHECK_EQ(graph.call(nested(1000)).message, kTooDeep);
  CHECK(graph.call(Value(1)).good);
}

TEST_CASE("events and queues that contain each other are destroyed without recursion") {
  Value value(7);
  for (std::size_t i = 0; i < kFarTooDeep; ++i) {
    if (i % 2 == 0) {
      Value outer = Value::adopt(new Event());
      as_event(outer).notify(in_list(std::move(value)));
      value = std::move(outer);
    } else {
      Value outer = Value::adopt(new Queue());
      as_queue(outer).push(std::move(value));
      value = std::move(outer);
    }
  }
  value = Value();
}
