// Configurations that would take all memory, time or stack if nothing stopped them: an error with a place instead.
#include <doctest/doctest.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "expressions.hpp"
#include "lang/expression.hpp"
#include "pipes.hpp"
#include "registry/api.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

std::string nested(const std::string& inner, std::size_t depth) {
  return repeat("S[", depth) + inner + repeat("]", depth);
}

std::vector<std::string> limits_exceeded(const PipeConfig& config) {
  register_core();
  std::vector<std::string> messages;
  const std::clock_t begin = std::clock();
  for (const Error& problem : plan_pipe(config).second) messages.push_back(problem.message());
  CHECK((std::clock() - begin) / CLOCKS_PER_SEC < 10);  // of a sanitizer's build; it would be hours
  return messages;
}

std::vector<std::string> limits_exceeded(Keys keys) { return limits_exceeded(one_node(std::move(keys))); }

std::string only(const std::vector<std::string>& messages) {
  REQUIRE_EQ(messages.size(), 1u);
  return messages[0];
}

// k0 = S[Reflect[k1],Reflect[k1]], k1 = S[Reflect[k2],Reflect[k2]], …
Keys doubling(std::size_t times) {
  Keys keys{{"backend", text("Reflect[k0]")}};
  for (std::size_t i = 0; i < times; ++i) {
    const std::string next = "Reflect[k" + std::to_string(i + 1) + "]";
    keys.emplace_back("k" + std::to_string(i), Value("S[" + next + "," + next + "]"));
  }
  keys.emplace_back("k" + std::to_string(times), text("Identity"));
  return keys;
}

TEST_CASE("ten thousand items run") {
  TestPipe pipe({{"backend", Value("S[" + repeat("Identity,", 9999) + "Identity]")}});
  CHECK_EQ(pipe.call(Value(7)).number(), 7);
}

TEST_CASE("a mistake among ten thousand items is found and shown with its position") {
  CHECK_EQ(
      only(limits_exceeded({{"backend", Value("S[" + repeat("Identity,", 9999) + "Identity[Pass]]")}})),
      "Identity takes no brackets\n"
      "  in  …ity,Identity,Identity,Identity,Identity,Identity,Identity,Identity,Identity,Identity,Identity[Pass]]"
      "   (node \"n\")\n"
      "                                                                                            ^^^^^^^^^^^^^^");
}

TEST_CASE("200 brackets around a backend run") {
  TestPipe pipe({{"backend", Value(nested("Identity", kMaxDepth))}});
  CHECK_EQ(pipe.call(Value(7)).number(), 7);
}

TEST_CASE("keys that refer to each other nest up to 1000 deep") {
  const auto chain = [](std::size_t links) {
    Keys keys{{"backend", text("Reflect[k0]")}};
    for (std::size_t i = 0; i < links; ++i)
      keys.emplace_back("k" + std::to_string(i), Value(nested("Reflect[k" + std::to_string(i + 1) + "]", 190)));
    keys.emplace_back("k" + std::to_string(links), text("Identity"));
    return keys;
  };
  {
    TestPipe pipe(chain(5));
    CHECK_EQ(pipe.call(Value(7)).number(), 7);
  }
  CHECK_EQ(
      only(limits_exceeded(chain(6))),
      "the pipeline is nested deeper than 1000\n"
      "  in  …S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[S[…"
      "   (node \"n\")\n"
      "                                                         ^\n"
      "  every use of a key or of a generated backend counts");
}

TEST_CASE("keys that multiply are stopped, and said once") {
  CHECK_EQ(limits_exceeded(doubling(10)), std::vector<std::string>{});
  CHECK_EQ(only(limits_exceeded(doubling(60))),
           "the pipeline has more than 100000 backends\n"
           "  in  Identity   (node \"n\")\n"
           "      ^^^^^^^^\n"
           "  every use of a key or of a generated backend counts");
}

TEST_CASE("a long text with many uses is not expanded without limit") {
  Keys keys{{"backend", Value("S[" + repeat("Reflect[long],", 99) + "Identity]")},
            {"long", Value("S[Identity," + repeat("\n", 500'000) + "Identity]")}};
  CHECK_EQ(only(limits_exceeded(std::move(keys))),
           "the pipeline comes to more than 16 MiB of text\n"
           "  in  S[Identity,   (node \"n\")\n"
           "      ^\n"
           "  every use of a key or of a generated backend counts");
}

TEST_CASE("a skipped child of a ModelLoader that is too large is not forgotten") {
  Keys keys = doubling(60);
  keys[0].second = text("ModelLoader[(.trt)Reflect[k0],(.onnx)Identity]");
  keys.emplace_back("model", text("m.onnx"));
  CHECK(only(limits_exceeded(std::move(keys))).find("the pipeline has more than 100000 backends\n") == 0);
}

TEST_CASE("generated backends that multiply are stopped") {
  register_core();
  for (int i = 0; i < 60; ++i) {
    const std::string next = "Doubled" + std::to_string(i + 1);
    const std::string body = i == 59 ? "Identity" : "S[" + next + "," + next + "]";
    Registry::instance().define(generated_class({"Doubled" + std::to_string(i), body, {}}));
  }
  CHECK(only(limits_exceeded({{"backend", text("Doubled0")}})).find("the pipeline has more than 100000 backends\n") ==
        0);
}

TEST_CASE("a Reflect that leads back to itself is named") {
  CHECK_EQ(limits_exceeded({{"backend", text("Reflect[post]")}, {"post", text("S[Identity,Reflect[backend]]")}}),
           std::vector<std::string>{"the expression under \"backend\" refers to itself\n"
                                    "  in  Reflect[post]   (node \"n\")\n"
                                    "      ^^^^^^^^^^^^^"});
}

TEST_CASE("templates do not multiply a text beyond a megabyte") {
  const Keys keys{{"backend", Value("Log(" + repeat("{long}", 1000) + ")")}, {"long", Value(repeat("x", 2000))}};
  CHECK_EQ(only(limits_exceeded(keys)),
           "with its {key} replaced, the expression is longer than 1 MiB\n"
           "  in  Log({long}{long}{long}{long}{long}{long}{long}{long}{long}{long}{long}{long}{long}{long}{long}{long}…"
           "   (node \"n\")\n"
           "          ^");
}

TEST_CASE("the planner and the parser both refuse NUL and invalid UTF-8 in an expression") {
  CHECK_EQ(only(limits_exceeded({{"backend", Value(std::string("Iden\0tity", 9))}})),
           "unexpected control byte 0x00\n"
           "  in  Iden\\x00tity   (node \"n\")\n"
           "          ^^^^\n"
           "  the only control bytes in an expression are tabs and line breaks");
  CHECK_EQ(only(limits_exceeded({{"backend", text("Identity(\xff)")}})),
           "byte 0xff is not UTF-8\n"
           "  in  Identity(\\xff)   (node \"n\")\n"
           "               ^^^^\n"
           "  expressions are UTF-8 text");
}

TEST_CASE("a key given twice is refused by the planner as by the parser") {
  CHECK_EQ(only(limits_exceeded({{"backend", text("Log(message=a,message=b)")}})),
           "key \"message\" is given twice\n"
           "  in  Log(message=a,message=b)   (node \"n\")\n"
           "                    ^^^^^^^\n"
           "  keep one of them");
}

}  // namespace
