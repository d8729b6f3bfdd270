// Suggestions for misspelt names.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/near.hpp"

using namespace hami;
using Names = std::vector<std::string>;

TEST_CASE("a misspelt name finds its neighbours, best first") {
  const Names backends = {"DecodeMat", "Identity", "ResizeTensor", "ResizeMat", "S"};
  CHECK(near_names("ResizeMt", backends) == Names{"ResizeMat", "ResizeTensor"});
  CHECK(near_names("Identtiy", backends) == Names{"Identity"});
  CHECK(near_names("Quantize", backends) == Names{});
}

TEST_CASE("a transposition counts one edit") {
  CHECK(near_names("modle", {"device", "mode", "model"}) == Names{"model", "mode"});
}

TEST_CASE("case differences count nearly nothing") {
  CHECK(near_names("tensorrttensor", {"TensorrtTensors", "TensorrtTensor"}) ==
        Names{"TensorrtTensor", "TensorrtTensors"});
  CHECK(near_names("s", {"S", "T"}) == Names{"S"});
  CHECK(near_names("MODEL", {"model"}) == Names{"model"});
}

TEST_CASE("short names do not match everything") {
  CHECK(near_names("ab", {"ac", "cb", "abc", "b"}) == Names{});
  CHECK(near_names("max", {"min", "map", "mix"}) == Names{"map", "mix"});
}

TEST_CASE("the answer has no repeats, not the name itself, and at most the limit") {
  CHECK(near_names("name1", {"name1", "name2", "name2", "name3", "name4", "name5"}) ==
        Names{"name2", "name3", "name4"});
  CHECK(near_names("name1", {"name2", "name3"}, 1) == Names{"name2"});
  CHECK(near_names("name1", {"name2"}, 0) == Names{});
  CHECK(near_names("", {"a", ""}) == Names{});
}

TEST_CASE("hostile names cost nothing") {
  const std::string huge(1 << 20, 'a');
  CHECK(near_names(huge, {huge + "b", "a"}) == Names{});
  CHECK(near_names("aaaa", {huge}) == Names{});
}

TEST_CASE("a suggestion reads as a sentence") {
  CHECK_EQ(did_you_mean({}), "");
  CHECK_EQ(did_you_mean({"A"}), "; did you mean A?");
  CHECK_EQ(did_you_mean({"ResizeMat", "ResizeTensor"}), "; did you mean ResizeMat or ResizeTensor?");
  CHECK_EQ(did_you_mean({"A", "B", "C"}), "; did you mean A, B or C?");
  CHECK_EQ(did_you_mean({"model"}, true), "; did you mean \"model\"?");
}
