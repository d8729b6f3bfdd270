// Values, dicts and errors: what the core carries.
#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "request/request.hpp"
#include "value/dict.hpp"
#include "value/error.hpp"

using namespace hami;

namespace {

struct Counter final : OpaqueObject {
  explicit Counter(int& alive) : OpaqueObject("test"), alive_(alive) { ++alive_; }
  ~Counter() override { --alive_; }
  int& alive_;
};

Error caught(const std::function<void()>& thrower) {
  try {
    thrower();
  } catch (...) {
    return current_error();
  }
  return Error(ErrorCode::kInternal, "threw nothing");
}

}  // namespace

TEST_CASE("a value gives what was put in, by kind") {
  CHECK(Value().is_none());
  CHECK(Value(true).as_bool());
  CHECK_EQ(Value(-7).as_int(), -7);
  CHECK_EQ(Value(2.5).as_float(), 2.5);
  CHECK_EQ(Value(3).as_float(), 3.0);
  CHECK_EQ(Value("text").as_text(), "text");
  CHECK_EQ(make_bytes(std::string("a\0b", 3)).as_text().size(), 3u);
  CHECK_EQ(make_list({Value(1), Value("x")}).as_list().at(1).as_text(), "x");
  CHECK(make_dict({{"a", Value(1)}}).kind() == Kind::kDict);
}

TEST_CASE("kinds have the numbers of the plugin contract") {
  const auto number = [](const Value& value) { return static_cast<int>(value.kind()); };
  CHECK_EQ(number(Value()), 0);
  CHECK_EQ(number(Value(true)), 1);
  CHECK_EQ(number(Value(7)), 2);
  CHECK_EQ(number(Value(0.5)), 3);
  CHECK_EQ(number(Value("text")), 16);
  CHECK_EQ(number(make_bytes("")), 17);
  CHECK_EQ(number(make_list({})), 18);
  CHECK_EQ(number(make_dict({})), 19);
  CHECK_EQ(static_cast<int>(Kind::kTensor), 20);
  CHECK_EQ(static_cast<int>(Kind::kEvent), 21);
  CHECK_EQ(static_cast<int>(Kind::kBackend), 22);
  CHECK_EQ(static_cast<int>(Kind::kOpaque), 23);
}

TEST_CASE("a value of another kind names both kinds") {
  CHECK_THROWS_WITH_AS(Value("1").as_int(), "expected int, got str", Error);
  CHECK_THROWS_WITH_AS(Value().as_float(), "expected float, got None", Error);
  CHECK_THROWS_WITH_AS(Value(1).as_bool(), "expected bool, got int", Error);
  CHECK_THROWS_WITH_AS(Value(1.5).as_text(), "expected str or bytes, got float", Error);
  CHECK_THROWS_WITH_AS(make_dict({}).as_list(), "expected list, got dict", Error);
  CHECK(caught([] { Value(1).as_text(); }).code() == ErrorCode::kDataType);
}

TEST_CASE("a counted value lives exactly as long as the last copy") {
  int alive = 0;
  {
    Value first = Value::adopt(new Counter(alive));
    Value second = first;
    Value third = std::move(first);
    CHECK(first.is_none());
    second = Value();
    CHECK_EQ(alive, 1);
    Value& same = third;
    third = same;
    CHECK_EQ(alive, 1);
  }
  CHECK_EQ(alive, 0);
}

TEST_CASE("a dict keeps the order of its keys and marks what was written since it came in") {
  Dict dict;
  dict.enter("data", Value(1));
  dict.enter("other", Value(2));
  dict.set("result", Value(3));
  dict.set("other", Value(4));
  std::string seen;
  for (const Dict::Entry& entry : dict) seen += entry.key + (entry.written ? "! " : " ");
  CHECK_EQ(seen, "data other! result! ");
  CHECK(dict.erase("other"));
  CHECK_FALSE(dict.erase("other"));
  CHECK_FALSE(dict.contains("other"));
  CHECK_EQ(dict.find("result")->as_int(), 3);
  CHECK_EQ(dict.size(), 2u);
}

TEST_CASE("any exception becomes an Error, and an Error stays what it is") {
  CHECK_EQ(caught([] { throw std::runtime_error("broken"); }).message(), "broken");
  CHECK_EQ(caught([] { throw 7; }).message(), "an exception that does not derive from std::exception");
  const Error memory = caught([] { throw std::bad_alloc(); });
  CHECK_EQ(memory.message(), "out of memory");
  CHECK(memory.code() == ErrorCode::kOutOfMemory);
  CHECK(memory.is_final());
  const Error own = caught([] { throw Error(ErrorCode::kQueueFull, "full").with_note("node \"a\""); });
  CHECK(own.code() == ErrorCode::kQueueFull);
  CHECK_EQ(own.notes().size(), 1u);
}

TEST_CASE("a note belongs to the copy that adds it") {
  const Error plain(ErrorCode::kRequest, "no");
  const Error noted = plain.with_note("node \"a\"").with_note("node \"b\"");
  CHECK(plain.notes().empty());
  CHECK_EQ(noted.notes().size(), 2u);
  CHECK_EQ(std::string(noted.what()), "no");
}

TEST_CASE("request_size is a whole number from 1 on") {
  Dict dict;
  CHECK_EQ(declared_items(dict), 1u);
  dict.set("request_size", Value(3));
  CHECK_EQ(declared_items(dict), 3u);
  dict.set("request_size", Value(0));
  CHECK_THROWS_WITH(declared_items(dict), "request_size is 0; it must be at least 1");
  dict.set("request_size", Value("3"));
  CHECK_THROWS_WITH(declared_items(dict), "request_size must be an int of at least 1, got str");
}

TEST_CASE("the first failure of a request wins") {
  const Ref<Request> request = make_counted<Request>();
  request->fail(Error(ErrorCode::kRequest, "first"));
  request->fail(Error(ErrorCode::kRequest, "second"));
  CHECK_EQ(request->error->message(), "first");
}

TEST_CASE("a branch is abandoned with the request it came from") {
  const Ref<Request> outer = make_counted<Request>();
  const Ref<Request> branch = outer->branch({}, 0);
  const Ref<Request> twig = branch->branch({}, 0);
  CHECK_FALSE(twig->abandoned());
  outer->abandon();
  CHECK(twig->abandoned());
}
