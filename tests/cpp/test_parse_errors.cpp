// The complete text of every message about an invalid expression.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "expressions.hpp"
#include "lang/expression.hpp"

using namespace hami;
using hami::testing::repeat;

namespace {

std::string message(const std::string& text) {
  try {
    parse(text);
  } catch (const SyntaxError& error) {
    return message_with_caret(error.what(), text, error.span, "", error.hint);
  }
  return "no error";
}

}  // namespace

TEST_CASE("a bracket that is never closed is pointed at") {
  CHECK_EQ(message("S[A,B"),
           "\"[\" is never closed\n"
           "  in  S[A,B\n"
           "       ^\n"
           "  expected \"]\" before the end of the text");
  CHECK_EQ(message("S[A,B[C],D"),
           "\"[\" is never closed\n"
           "  in  S[A,B[C],D\n"
           "       ^\n"
           "  expected \"]\" before the end of the text");
  CHECK_EQ(message("S[A(x=1]"),
           "\"(\" is never closed\n"
           "  in  S[A(x=1]\n"
           "         ^\n"
           "  expected \")\" before \"]\"");
  CHECK_EQ(message("A(x="),
           "\"(\" is never closed\n"
           "  in  A(x=\n"
           "       ^\n"
           "  expected \")\" before the end of the text");
}

TEST_CASE("a stray bracket is pointed at") {
  CHECK_EQ(message("S[A]]"),
           "unexpected \"]\"\n"
           "  in  S[A]]\n"
           "          ^\n"
           "  no \"[\" is open here");
  CHECK_EQ(message("S[A)]"),
           "unexpected \")\"\n"
           "  in  S[A)]\n"
           "         ^\n"
           "  no \"(\" is open here");
}

TEST_CASE("empty brackets are refused") {
  CHECK_EQ(message("S[ ]"),
           "the brackets are empty\n"
           "  in  S[ ]\n"
           "       ^^^\n"
           "  write a backend between them, or leave them out");
  CHECK_EQ(message("S[A()]"),
           "the parentheses are empty\n"
           "  in  S[A()]\n"
           "         ^^\n"
           "  write a value or key=value between them, or leave them out");
}

TEST_CASE("a missing part is named") {
  CHECK_EQ(message(" \n "),
           "the expression is empty\n"
           "  in  \n"
           "      ^\n"
           "  expected a backend, for example S[DecodeMat,ResizeMat]");
  CHECK_EQ(message("S[A,,B]"),
           "an item is missing before \",\"\n"
           "  in  S[A,,B]\n"
           "          ^\n"
           "  expected a backend, the name of an instance, or key=value");
  CHECK_EQ(message("S[A;]"),
           "an item is missing before \"]\"\n"
           "  in  S[A;]\n"
           "          ^\n"
           "  expected a backend, the name of an instance, or key=value");
  CHECK_EQ(message("A(1,)"),
           "a value is missing before \")\"\n"
           "  in  A(1,)\n"
           "          ^\n"
           "  expected a value or key=value");
  CHECK_EQ(message("A(x=)"),
           "a value is missing after \"x=\"\n"
           "  in  A(x=)\n"
           "          ^\n"
           "  an empty value is written x=''");
  CHECK_EQ(message("S[a:=,b]"),
           "the name of a backend is missing after \"a:=\"\n"
           "  in  S[a:=,b]\n"
           "           ^\n"
           "  expected a backend, for example DecodeMat");
  CHECK_EQ(message("S[A,(or)]"),
           "the name of a backend is missing after \"(or)\"\n"
           "  in  S[A,(or)]\n"
           "              ^\n"
           "  expected a backend, for example DecodeMat");
  CHECK_EQ(message("hami-image::"),
           "the name of a backend is missing after \"hami-image::\"\n"
           "  in  hami-image::\n"
           "                  ^\n"
           "  expected a backend, for example hami-image::ResizeMat");
  CHECK_EQ(message("[A]"),
           "unexpected \"[\"\n"
           "  in  [A]\n"
           "      ^\n"
           "  expected a backend, for example DecodeMat");
}

TEST_CASE("text after the end is refused with what was probably meant") {
  CHECK_EQ(message("A,B"),
           "unexpected \",\"\n"
           "  in  A,B\n"
           "       ^\n"
           "  the expression has ended; S[A,B] runs backends one after the other");
  CHECK_EQ(message("A[B](x)"),
           "unexpected \"(\"\n"
           "  in  A[B](x)\n"
           "          ^\n"
           "  parameters come before the brackets: A(…)[…]");
  CHECK_EQ(message("A(x)(y)"),
           "unexpected \"(\"\n"
           "  in  A(x)(y)\n"
           "          ^\n"
           "  a backend takes one list of parameters");
  CHECK_EQ(message("A[B][C]"),
           "unexpected \"[\"\n"
           "  in  A[B][C]\n"
           "          ^\n"
           "  a backend takes one pair of brackets; \";\" separates phases");
  CHECK_EQ(message("a:=B"),
           "unexpected \":\"\n"
           "  in  a:=B\n"
           "       ^\n"
           "  \"::\" follows a distribution; an alias is only allowed inside brackets");
  CHECK_EQ(message("A=1"),
           "unexpected \"=\"\n"
           "  in  A=1\n"
           "       ^\n"
           "  key=value is only allowed inside parentheses or brackets");
}

TEST_CASE("two things without a comma between them are refused") {
  CHECK_EQ(message("S[A Bc]"),
           "unexpected \"Bc\"\n"
           "  in  S[A Bc]\n"
           "          ^^\n"
           "  expected \",\", \";\" or \"]\"");
  CHECK_EQ(message("A(x y)"),
           "unexpected \"y\"\n"
           "  in  A(x y)\n"
           "          ^\n"
           "  expected \",\" or \")\"; white space and , ; = ( ) [ ] { } in a value need quotes");
  CHECK_EQ(message("S[default=A[B]]"),
           "unexpected \"[\"\n"
           "  in  S[default=A[B]]\n"
           "                 ^\n"
           "  expected \",\", \";\" or \"]\"; white space and , ; = ( ) [ ] { } in a value need quotes");
  CHECK_EQ(message("S[a:B]"),
           "unexpected \":\"\n"
           "  in  S[a:B]\n"
           "         ^\n"
           "  \":=\" follows an alias, \"::\" a distribution");
  CHECK_EQ(message("S[(or)a:=B]"),
           "unexpected \":\"\n"
           "  in  S[(or)a:=B]\n"
           "             ^\n"
           "  an alias comes first: a:=(…)…");
}

TEST_CASE("a value that needs quotes says so") {
  CHECK_EQ(message("A(x=[1])"),
           "unexpected \"[\"\n"
           "  in  A(x=[1])\n"
           "          ^\n"
           "  expected a value; white space and , ; = ( ) [ ] { } in a value need quotes");
  CHECK_EQ(message("A([1])"),
           "unexpected \"[\"\n"
           "  in  A([1])\n"
           "        ^\n"
           "  expected a value or key=value; white space and , ; = ( ) [ ] { } in a value need quotes");
}

TEST_CASE("names, keys and aliases have a form") {
  CHECK_EQ(message("S[a..b]"),
           "\"a..b\" is not a valid name\n"
           "  in  S[a..b]\n"
           "        ^^^^\n"
           "  a name is letters, digits, \"_\" and \"-\", in parts joined by \".\", and may hold {key}");
  CHECK_EQ(message("hami-image::a.b"),
           "\"a.b\" is not a valid backend name\n"
           "  in  hami-image::a.b\n"
           "                  ^^^\n"
           "  after \"::\" a name is letters, digits and \"_\" and does not start with a digit");
  CHECK_EQ(message("{x}::A"),
           "\"{x}\" is not a valid distribution name\n"
           "  in  {x}::A\n"
           "      ^^^\n"
           "  expected the name of an installed package, for example hami-image::ResizeMat");
  CHECK_EQ(message("A(my-key=v)"),
           "\"my-key\" is not a valid key\n"
           "  in  A(my-key=v)\n"
           "        ^^^^^^\n"
           "  a key is letters, digits and \"_\" and does not start with a digit");
  CHECK_EQ(message("A('k'=v)"),
           "a key is written without quotes\n"
           "  in  A('k'=v)\n"
           "        ^^^\n"
           "  a key is letters, digits and \"_\" and does not start with a digit");
  CHECK_EQ(message("S[a.b:=C]"),
           "\"a.b\" is not a valid alias\n"
           "  in  S[a.b:=C]\n"
           "        ^^^\n"
           "  an alias is letters, digits and \"_\" and does not start with a digit");
  CHECK_EQ(message("S['A']"),
           "unexpected \"'\"\n"
           "  in  S['A']\n"
           "        ^\n"
           "  the name of a backend is written without quotes");
}

TEST_CASE("a key given twice is refused, also across the phases of one pair of brackets") {
  CHECK_EQ(message("A(x=1,y=2,x=3)"),
           "key \"x\" is given twice\n"
           "  in  A(x=1,y=2,x=3)\n"
           "                ^\n"
           "  keep one of them");
  CHECK_EQ(message("S[x=1;x=2]"),
           "key \"x\" is given twice\n"
           "  in  S[x=1;x=2]\n"
           "            ^\n"
           "  keep one of them");
  CHECK_EQ(message("S[A(x=1),B(x=1),x=1,C[x=1]]"), "no error");
}

TEST_CASE("quotes and escapes are checked") {
  CHECK_EQ(message("A(\"x)"),
           "quote \" is never closed\n"
           "  in  A(\"x)\n"
           "        ^\n"
           "  expected \" before the end of the text");
  CHECK_EQ(message("A('x\\"),
           "quote ' is never closed\n"
           "  in  A('x\\\n"
           "        ^\n"
           "  expected ' before the end of the text");
  CHECK_EQ(message("A('x\\q')"),
           "unknown escape \"\\q\"\n"
           "  in  A('x\\q')\n"
           "          ^^\n"
           "  known are \\\\ \\' \\\" \\n \\t \\r");
}

TEST_CASE("templates are checked") {
  CHECK_EQ(message("node.{x"),
           "\"{\" is never closed\n"
           "  in  node.{x\n"
           "           ^\n"
           "  a template is {key}, for example {node_name}; other braces need quotes");
  CHECK_EQ(message("A({my-key})"),
           "\"{my-key}\" is not a valid template\n"
           "  in  A({my-key})\n"
           "        ^^^^^^^^\n"
           "  a key is letters, digits and \"_\" and does not start with a digit");
  CHECK_EQ(message("S[A}"),
           "unexpected \"}\"\n"
           "  in  S[A}\n"
           "         ^\n"
           "  expected \",\", \";\" or \"]\"");
}

TEST_CASE("characters that no expression holds are shown escaped") {
  CHECK_EQ(message("S[@]"),
           "unexpected \"@\"\n"
           "  in  S[@]\n"
           "        ^\n"
           "  expected a backend, the name of an instance, or key=value");
  CHECK_EQ(message(std::string("S[A\0B]", 6)),
           "unexpected control byte 0x00\n"
           "  in  S[A\\x00B]\n"
           "         ^^^^\n"
           "  the only control bytes in an expression are tabs and line breaks");
  CHECK_EQ(message("A('\x7F')"),
           "unexpected control byte 0x7f\n"
           "  in  A('\\x7f')\n"
           "         ^^^^\n"
           "  the only control bytes in an expression are tabs and line breaks");
  CHECK_EQ(message("A('\xFF')"),
           "byte 0xff is not UTF-8\n"
           "  in  A('\\xff')\n"
           "         ^^^^\n"
           "  expressions are UTF-8 text");
  CHECK_EQ(message("A[\xC2\xA0 B]"),
           "unexpected \"\xC2\xA0\"\n"
           "  in  A[\xC2\xA0 B]\n"
           "        ^\n"
           "  expected a backend, the name of an instance, or key=value");
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE5\x9B", "\x80"}) {
    CAPTURE(bad);
    CHECK(message(std::string("A('") + bad + "')").find("is not UTF-8\n") != std::string::npos);
  }
}

TEST_CASE("brackets nest up to 200 deep") {
  const std::string deepest = repeat("S[", kMaxDepth) + "A" + repeat("]", kMaxDepth);
  const Expr tree = parse(deepest);
  CHECK_EQ(print(tree), deepest);
  CHECK(same_tree(Expr(tree), tree));
  CHECK_EQ(message("S[" + deepest + "]"),
           "brackets are nested deeper than 200\n"
           "  in  …[" +
               repeat("S[", 24) + "S[A" + repeat("]", 48) + "…\n" + std::string(6 + 1 + 50, ' ') +
               "^\n"
               "  give an inner part a name with hami.generate");
}

TEST_CASE("hostile text of a mebibyte is refused or read without an overflow") {
  CHECK_THROWS_AS(parse(repeat("S[", kMaxText / 2)), SyntaxError);
  CHECK_THROWS_AS(parse(repeat("(", kMaxText)), SyntaxError);
  CHECK_THROWS_AS(parse(repeat("{", kMaxText)), SyntaxError);
  CHECK_THROWS_AS(parse("A('" + repeat("\\\\", kMaxText / 2 - 2)), SyntaxError);
  CHECK_EQ(parse("S[" + repeat("A,", kMaxText / 2 - 2) + "A]").phases[0].size(), kMaxText / 2 - 1);
  CHECK_EQ(parse(repeat("a.", kMaxText / 2 - 1) + "a").name.size(), kMaxText - 1);
  std::string keys = "A(";
  for (int i = 0; keys.size() < kMaxText - 32; ++i) keys += "k" + std::to_string(i) + "=1,";
  CHECK_EQ(parse(keys + "z=1)").args.back().key, "z");
  CHECK_EQ(message("A('" + repeat("x", kMaxText) + "')"),
           "the expression is longer than 1 MiB\n"
           "  in  A('" +
               repeat("x", 97) +
               "…\n"
               "      ^\n"
               "  it has 1048581 bytes");
}

TEST_CASE("mutated text is refused with a span inside it, or read and printed back") {
  std::mt19937 random(7);
  const std::string marks = "()[]{},;:='\"\\. \n\t-_aZ0\xC3\x80@";
  std::size_t refused = 0;
  std::size_t read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(testing::kVerbatim[random() % testing::kVerbatim.size()]);
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t place = random() % text.size();
      const char mark = marks[random() % marks.size()];
      if (random() % 2 == 0) {
        text[place] = mark;
      } else {
        text.insert(place, 1, mark);
      }
    }
    CAPTURE(text);
    try {
      const Expr tree = parse(text);
      REQUIRE(same_tree(parse(print(tree)), tree));
      ++read;
    } catch (const SyntaxError& error) {
      REQUIRE_LE(error.span.begin, error.span.end);
      REQUIRE_LE(error.span.end, text.size());
      REQUIRE_FALSE(error.hint.empty());
      ++refused;
    }
  }
  CHECK_GT(refused, 1000u);
  CHECK_GT(read, 1000u);
}
