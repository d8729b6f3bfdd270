// Text to tree: the parsed nodes and their positions.
#include <doctest/doctest.h>

#include <string>

#include "expressions.hpp"
#include "lang/expression.hpp"

using namespace hami;

namespace {

std::string_view at(std::string_view text, Span span) { return text.substr(span.begin, span.end - span.begin); }

}  // namespace

TEST_CASE("every verbatim expression parses and round-trips") {
  for (const std::string_view text : testing::kVerbatim) {
    CAPTURE(text);
    const Expr tree = parse(text);
    CHECK(same_tree(parse(print(tree)), tree));
    CHECK_EQ(print(parse(print(tree))), print(tree));
  }
}

TEST_CASE("phases, items, aliases and settings come apart") {
  const Expr tree = parse("IoC[a:=Identity, b:=X(1, k='v w'); S[a,(or)b], default=X]");
  CHECK_EQ(tree.name, "IoC");
  REQUIRE_EQ(tree.phases.size(), 2u);
  REQUIRE_EQ(tree.phases[0].size(), 2u);
  CHECK_EQ(tree.phases[0][0].alias, "a");
  CHECK_EQ(tree.phases[0][0].expr->name, "Identity");
  const Expr& second = *tree.phases[0][1].expr;
  REQUIRE_EQ(second.args.size(), 2u);
  CHECK_EQ(second.args[0].key, "");
  CHECK_EQ(second.args[0].value, "1");
  CHECK_FALSE(second.args[0].quoted);
  CHECK_EQ(second.args[1].key, "k");
  CHECK_EQ(second.args[1].value, "v w");
  CHECK(second.args[1].quoted);
  REQUIRE_EQ(tree.phases[1].size(), 2u);
  const Expr& sequence = *tree.phases[1][0].expr;
  REQUIRE_EQ(sequence.phases.size(), 1u);
  CHECK_EQ(sequence.phases[0][1].expr->when[0].value, "or");
  CHECK(tree.phases[1][1].is_setting);
  CHECK_EQ(tree.phases[1][1].setting.key, "default");
  CHECK_EQ(tree.phases[1][1].setting.value, "X");
}

TEST_CASE("a name is an identifier, a path, or an identifier of a distribution") {
  for (const char* name : {"A", "_a", "det-1", "0", "node.det-1.0", "node.{node_name}", "{a}{b}", "x{a}.y"}) {
    CAPTURE(name);
    CHECK_EQ(parse(name).name, name);
  }
  const Expr tree = parse("acme-cv2.x :: Resize{kind}");
  CHECK_EQ(tree.distribution, "acme-cv2.x");
  CHECK_EQ(tree.name, "Resize{kind}");
}

TEST_CASE("white space between tokens means nothing") {
  CHECK(same_tree(parse(" \t S \r\n [ a := ( or ) A ( 1 , k = v ) , k = 'v' ; B ] \n"),
                  parse("S[a:=(or)A(1,k=v),k=v;B]")));
}

TEST_CASE("quoted values know six escapes and keep everything else") {
  CHECK_EQ(parse(R"(A('\\ \' \" \n \t \r'))").args[0].value, "\\ ' \" \n \t \r");
  CHECK_EQ(parse(R"(A("it's [;] {x}"))").args[0].value, "it's [;] {x}");
  CHECK_EQ(parse("A('')").args[0].value, "");
  CHECK_EQ(parse("A('two\nlines')").args[0].value, "two\nlines");
}

TEST_CASE("bare values run to the next mark") {
  const Expr tree = parse("A(.onnx,-1.5,/m/{node_name}.onnx,C:\\x,http://h:80/p?q#f,\xE5\x9B\xBE)");
  REQUIRE_EQ(tree.args.size(), 6u);
  CHECK_EQ(tree.args[0].value, ".onnx");
  CHECK_EQ(tree.args[1].value, "-1.5");
  CHECK_EQ(tree.args[2].value, "/m/{node_name}.onnx");
  CHECK_EQ(tree.args[3].value, "C:\\x");
  CHECK_EQ(tree.args[4].value, "http://h:80/p?q#f");
  CHECK_EQ(tree.args[5].value, "\xE5\x9B\xBE");
}

TEST_CASE("everything keeps its position") {
  const std::string text = " S [ a := (or) hami-image :: B (k = 'v') [C] , d = e ] ";
  const Expr tree = parse(text);
  CHECK_EQ(at(text, tree.span), "S [ a := (or) hami-image :: B (k = 'v') [C] , d = e ]");
  CHECK_EQ(at(text, tree.name_span), "S");
  const Item& first = tree.phases[0][0];
  CHECK_EQ(at(text, first.span), "a := (or) hami-image :: B (k = 'v') [C]");
  CHECK_EQ(at(text, first.alias_span), "a");
  CHECK_EQ(at(text, first.expr->span), "(or) hami-image :: B (k = 'v') [C]");
  CHECK_EQ(at(text, first.expr->name_span), "hami-image :: B");
  CHECK_EQ(at(text, first.expr->when[0].value_span), "or");
  CHECK_EQ(at(text, first.expr->args[0].key_span), "k");
  CHECK_EQ(at(text, first.expr->args[0].value_span), "'v'");
  const Item& second = tree.phases[0][1];
  CHECK_EQ(at(text, second.span), "d = e");
  CHECK_EQ(at(text, second.setting.key_span), "d");
  CHECK_EQ(at(text, second.setting.value_span), "e");
}

TEST_CASE("copies of a tree are independent") {
  const Expr tree = parse("S[A[B],k=v]");
  Expr copy = tree;
  CHECK(same_tree(copy, tree));
  Item& item = copy.phases[0][0];
  item = tree.phases[0][0];
  CHECK(same_tree(copy, tree));
  item.expr->phases[0][0].expr->name = "C";
  CHECK_FALSE(same_tree(copy, tree));
  CHECK_EQ(print(tree), "S[A[B],k=v]");
}
