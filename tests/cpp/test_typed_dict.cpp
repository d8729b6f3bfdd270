// TypedDict: declared keys and kinds, checked when it is made and on every write.
#include <doctest/doctest.h>

#include "value/dict.hpp"
#include "value/error.hpp"

using namespace hami;

namespace {

const DictType kDetect("Detect", {{"data", Kind::kBytes},
                                  {"boxes", Kind::kList},
                                  {"score", Kind::kFloat, false},
                                  {"extra", std::nullopt, false},
                                  {"result", Kind::kInt}});

TypedDict detect() {
  Dict dict;
  dict.enter("data", make_bytes("jpeg"));
  dict.enter("boxes", make_list({1, 2}));
  return TypedDict(kDetect, std::move(dict));
}

}  // namespace

TEST_CASE("a typed dict is made of what fits, and result is not required") {
  const TypedDict dict = detect();
  CHECK_EQ(dict.size(), 2u);
  CHECK(dict.at("data").as_text() == "jpeg");
  CHECK(&dict.type() == &kDetect);
}

TEST_CASE("missing keys are reported together") {
  CHECK_THROWS_WITH_AS(TypedDict{kDetect}, "Detect lacks the keys \"data\" (bytes), \"boxes\" (list)", Error);
  Dict dict;
  dict.enter("boxes", make_list({}));
  CHECK_THROWS_WITH(TypedDict(kDetect, dict), "Detect lacks the key \"data\" (bytes)");
}

TEST_CASE("every write is checked, and a refused one changes nothing") {
  TypedDict dict = detect();
  CHECK_THROWS_WITH_AS(dict.set("boxes", "none"), "key \"boxes\" takes list, got str", Error);
  CHECK_THROWS_WITH(dict.set("score", true), "key \"score\" takes float, got bool");
  CHECK_THROWS_WITH(dict.set("result", "yes"), "key \"result\" takes int, got str");
  CHECK(dict.at("boxes").kind() == Kind::kList);
  CHECK_EQ(dict.size(), 2u);
  dict.set("score", 1);  // a float takes an int too
  dict.set("extra", "anything");
  dict.set("extra", 3);
  dict.set("result", 7);
  CHECK_EQ(dict.size(), 5u);
}

TEST_CASE("what it is made of is checked") {
  Dict wrong;
  wrong.enter("data", 1);
  wrong.enter("boxes", make_list({}));
  CHECK_THROWS_WITH(TypedDict(kDetect, wrong), "key \"data\" takes bytes, got int");
}

TEST_CASE("an undeclared key is refused with what is near; the reserved keys of a request are not") {
  TypedDict dict = detect();
  CHECK_THROWS_WITH_AS(
      dict.set("boxs", 1),
      "Detect has no key \"boxs\"; did you mean \"boxes\"?  (its keys: data, boxes, score, extra, result)", Error);
  CHECK_THROWS_WITH(TypedDict(DictType("Empty", {})).set("a", 1), "Empty has no key \"a\"  (its keys: none)");
  dict.set("priority", 7);
  dict.set("req_id", "r1");
  CHECK_EQ(dict.size(), 4u);
}

TEST_CASE("required keys stay, others go") {
  TypedDict dict = detect();
  CHECK_THROWS_WITH_AS(dict.erase("boxes"), "key \"boxes\" of Detect is required; it cannot be removed", Error);
  CHECK(dict.contains("boxes"));
  CHECK_FALSE(dict.erase("score"));
  dict.set("score", 0.5);
  CHECK(dict.erase("score"));
  dict.set("result", 1);
  CHECK(dict.erase("result"));
  CHECK(dict.find("result") == nullptr);
  CHECK_THROWS_WITH_AS(dict.at("result"), "Detect has no key \"result\"", Error);
}

TEST_CASE("a typed dict gives its dict to a request") {
  TypedDict dict = detect();
  dict.set("score", 0.25);
  const Dict request = std::move(dict).take();
  CHECK_EQ(request.size(), 3u);
  CHECK_EQ(request.find("score")->as_float(), 0.25);
}
