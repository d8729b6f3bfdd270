// The form of messages about expressions: the excerpt of the text and the position of the caret.
#include <doctest/doctest.h>

#include <string>

#include "lang/expression.hpp"
#include "value/visible.hpp"

using namespace hami;

TEST_CASE("the message has the form of the plugin contract") {
  CHECK_EQ(message_with_caret("backend \"TensorrtTensor\" not found", "S[DecodeTensor,ResizeTensor,TensorrtTensor]",
                              {28, 42}, "node \"resnet\", pipeline.toml:7",
                              "it is provided by hami-trt, which is not installed: pip install hami-trt"),
           "backend \"TensorrtTensor\" not found\n"
           "  in  S[DecodeTensor,ResizeTensor,TensorrtTensor]   (node \"resnet\", pipeline.toml:7)\n"
           "                                  ^^^^^^^^^^^^^^\n"
           "  it is provided by hami-trt, which is not installed: pip install hami-trt");
}

TEST_CASE("place and hint may be left out") {
  CHECK_EQ(message_with_caret("headline", "S[A]", {2, 3}, "", ""), "headline\n  in  S[A]\n        ^");
}

TEST_CASE("the caret counts columns, not bytes") {
  const auto begin = static_cast<std::uint32_t>(std::string("S['图é',").size());
  CHECK_EQ(message_with_caret("h", "S['图é',B]", {begin, begin + 1}, "", ""), "h\n  in  S['图é',B]\n              ^");
  CHECK_EQ(message_with_caret("h", "e\xCC\x81[图]", {4, 7}, "", ""), "h\n  in  e\xCC\x81[图]\n        ^^");
}

TEST_CASE("a text of several lines shows the line of the span") {
  const std::string text = "S[\n    A,\r\n    Bad,\n]";
  const auto bad = static_cast<std::uint32_t>(text.find("Bad"));
  CHECK_EQ(message_with_caret("h", text, {bad, bad + 3}, "", ""), "h\n  in  Bad,\n      ^^^");
  CHECK_EQ(message_with_caret("h", text, {0, static_cast<std::uint32_t>(text.size())}, "", ""),
           "h\n  in  S[\n      ^^");
  const auto comma = static_cast<std::uint32_t>(text.find("A,") + 1);
  CHECK_EQ(message_with_caret("h", text, {comma, comma + 1}, "", ""), "h\n  in  A,\n       ^");
}

TEST_CASE("a long text is cut around the span") {
  const std::string left(300, 'a');
  const std::string right(300, 'b');
  CHECK_EQ(message_with_caret("h", left + "XYZ" + right, {300, 303}, "", ""),
           "h\n  in  …" + std::string(50, 'a') + "XYZ" + std::string(47, 'b') + "…\n" + std::string(57, ' ') + "^^^");
  CHECK_EQ(message_with_caret("h", "XYZ" + right, {0, 3}, "", ""),
           "h\n  in  XYZ" + std::string(97, 'b') + "…\n      ^^^");
  CHECK_EQ(message_with_caret("h", left + "XYZ", {300, 303}, "", ""),
           "h\n  in  …" + std::string(97, 'a') + "XYZ\n" + std::string(104, ' ') + "^^^");
  CHECK_EQ(message_with_caret("h", left, {0, 300}, "", ""),
           "h\n  in  " + std::string(100, 'a') + "…\n      " + std::string(100, '^'));
  CHECK_EQ(message_with_caret("h", std::string(101, 'a'), {100, 101}, "", ""),
           "h\n  in  …" + std::string(100, 'a') + "\n" + std::string(106, ' ') + "^");
}

TEST_CASE("a text of a mebibyte without a line break is cut as well") {
  std::string wide;
  while (wide.size() < (std::size_t{1} << 20)) wide += "图";
  const std::string message = message_with_caret("h", wide, {600000, 600003}, "", "");
  std::string half;
  for (int i = 0; i < 25; ++i) half += "图";
  CHECK_EQ(message, "h\n  in  …" + half + half + "…\n" + std::string(57, ' ') + "^^");
}

TEST_CASE("a long text without width is cut as well") {
  std::string accents;
  for (int i = 0; i < 3000; ++i) accents += "\xCC\x81";  // U+0301 combines with the character before it
  const std::string shown = accents.substr(0, 4096);
  CHECK_EQ(message_with_caret("h", accents, {3000, 3002}, "", ""), "h\n  in  …" + shown + "…\n       ^");
}

TEST_CASE("a span outside the text points behind its end") {
  CHECK_EQ(message_with_caret("h", "S[A", {70, 90}, "", ""), "h\n  in  S[A\n         ^");
  CHECK_EQ(message_with_caret("h", "A  ", {3, 3}, "", ""), "h\n  in  A  \n         ^");
  CHECK_EQ(message_with_caret("h", "", {0, 0}, "", ""), "h\n  in  \n      ^");
}

TEST_CASE("what a terminal would hide or obey is escaped") {
  CHECK_EQ(visible(std::string("a\0\x1b[31m\n\t\r\x7f", 11)), "a\\x00\\x1b[31m\\n\\t\\r\\x7f");
  CHECK_EQ(visible("\xE2\x80\xAE\xC2\x85\xEF\xBB\xBF\xF3\xA0\x80\x81"), "\\u202e\\u0085\\ufeff\\U000e0001");
  CHECK_EQ(visible("\xFFz\xE5\x9B"), "\\xffz\\xe5\\x9b");
  CHECK_EQ(visible("图é"), "图é");
  CHECK_EQ(visible("abcdef", 3), "abc…");
  CHECK_EQ(in_quotes("a\"b"), "\"a\"b\"");
}
