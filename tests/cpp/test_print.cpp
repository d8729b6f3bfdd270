// Tree to canonical text and back, for thousands of trees; templates replaced by parameters.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "expressions.hpp"
#include "lang/expression.hpp"

using namespace hami;

namespace {

// Any tree the parser can make, from a seed.
class TreeMaker {
 public:
  explicit TreeMaker(std::uint32_t seed) : random_(seed) {}

  Expr expr(std::size_t depth) {
    Expr made;
    if (chance(5)) made.when = args();
    if (chance(6)) {
      made.distribution = pick(distributions_);
      made.name = pick(idents_) + (chance(4) ? "{" + pick(idents_) + "}" : "");
    } else {
      made.name = path();
    }
    if (chance(3)) made.args = args();
    if (depth > 0 && !chance(3)) made.phases = phases(depth - 1);
    return made;
  }

 private:
  bool chance(unsigned one_in) { return below(one_in) == 0; }
  std::size_t below(std::size_t limit) { return random_() % limit; }

  template <std::size_t N>
  std::string pick(const char* const (&from)[N]) {
    return from[below(N)];
  }

  std::string path() {
    std::string made;
    do {
      if (!made.empty()) made += '.';
      made += chance(4) ? "{" + pick(idents_) + "}" + pick(tails_) : pick(segments_);
    } while (chance(4));
    return made;
  }

  // Quoted values of any text; bare ones of what may be bare.
  Arg value() {
    Arg made;
    made.quoted = chance(2);
    if (made.quoted) {
      for (std::size_t i = below(8); i > 0; --i) made.value += pick(quoted_);
      return made;
    }
    do {
      made.value += chance(4) ? "{" + pick(idents_) + "}" : pick(bare_);
    } while (chance(2));
    return made;
  }

  std::vector<Arg> args() {
    std::vector<Arg> made;
    for (std::size_t i = 1 + below(3); i > 0; --i) {
      made.push_back(value());
      if (chance(2)) made.back().key = pick(idents_) + std::to_string(i);
    }
    return made;
  }

  std::vector<std::vector<Item>> phases(std::size_t depth) {
    std::vector<std::vector<Item>> made(1 + below(3));
    int settings = 0;
    for (std::vector<Item>& phase : made) {
      for (std::size_t i = 1 + below(3); i > 0; --i) {
        Item& item = phase.emplace_back();
        item.is_setting = chance(5);
        if (item.is_setting) {
          item.setting = value();
          item.setting.key = pick(idents_) + std::to_string(++settings);
        } else {
          if (chance(4)) item.alias = pick(idents_);
          item.expr = std::make_unique<Expr>(expr(depth));
        }
      }
    }
    return made;
  }

  static constexpr const char* idents_[] = {"A", "S", "IoC", "_x1", "node_name", "or", "default", "Z9"};
  static constexpr const char* segments_[] = {"A", "det-1", "0", "node", "-", "_", "a1-b_2", "or"};
  static constexpr const char* tails_[] = {"", "-", "x", "{key}"};
  static constexpr const char* distributions_[] = {"hami-image", "acme.cv", "0x", "a_b"};
  static constexpr const char* bare_[] = {".onnx", "4", "-1.5",         "a:b",      "C:\\x",
                                          "/m/n",  ":", "\xE5\x9B\xBE", "\xC2\xA0", "*&^%$#@!~`|<>?"};
  static constexpr const char* quoted_[] = {
      " ", "'", "\"", "\\", "\n", "\t", "\r", "{", "}", "{x}", "[", "]", ",", ";", "=", "a", "\xF0\x9F\x98\x80"};

  std::mt19937 random_;
};

}  // namespace

TEST_CASE("parse(print(t)) is t for every tree") {
  for (std::uint32_t seed = 0; seed < 5000; ++seed) {
    const Expr tree = TreeMaker(seed).expr(4);
    const std::string text = print(tree);
    CAPTURE(seed);
    CAPTURE(text);
    const Expr again = parse(text);
    REQUIRE(same_tree(again, tree));
    REQUIRE_EQ(print(again), text);
  }
}

TEST_CASE("trees that differ print differently") {
  std::map<std::string, Expr> seen;
  std::size_t repeated = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    Expr tree = TreeMaker(seed).expr(1);
    const auto [entry, is_new] = seen.try_emplace(print(tree), tree);
    if (is_new) continue;
    ++repeated;
    CHECK(same_tree(entry->second, tree));
  }
  CHECK_GT(repeated, 0u);
}

TEST_CASE("printing is canonical") {
  CHECK_EQ(print(parse(" S [ a := ( or ) dist-x :: A ( 1 , k = \"v\" ) , d = 'e' ; B ] ")),
           "S[a:=(or)dist-x::A(1,k=v),d=e;B]");
  CHECK_EQ(print(parse(testing::kVerbatim[5])),
           "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine],TensorrtInferTensor;CatSplit[S[FixTensor,"
           "CatTensor],"
           "S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]");
}

TEST_CASE("values are quoted only where they must be") {
  const auto printed = [](const std::string& value) { return print(parse("A(" + value + ")")); };
  CHECK_EQ(printed("'x'"), "A(x)");
  CHECK_EQ(printed("''"), "A('')");
  CHECK_EQ(printed("\"a b\""), "A('a b')");
  CHECK_EQ(printed("\"it's\""), "A(\"it's\")");
  CHECK_EQ(printed(R"('it\'s "x"')"), R"(A('it\'s "x"'))");
  CHECK_EQ(printed("'a\\nb\\tc\\rd'"), R"(A('a\nb\tc\rd'))");
  CHECK_EQ(printed(R"('\\')"), R"(A(\))");
  CHECK_EQ(printed(R"('\\ ')"), R"(A('\\ '))");
}

TEST_CASE("braces that were quoted stay quoted, templates stay bare") {
  CHECK_EQ(print(parse("A({x},'{x}','{')")), "A({x},'{x}','{')");
  CHECK_FALSE(same_tree(parse("A({x})"), parse("A('{x}')")));
  CHECK(same_tree(parse("A(x)"), parse("A('x')")));
}

TEST_CASE("trees are the same only if each part is") {
  const std::vector<std::pair<const char*, const char*>> pairs{
      {"A(k=1)", "A(j=1)"}, {"A(k=1)", "A(k=2)"},   {"A(1)", "A"},        {"d::A", "A"},      {"S[A]", "S[B]"},
      {"S[A;B]", "S[A,B]"}, {"S[a:=A]", "S[b:=A]"}, {"S[a=1]", "S[a=2]"}, {"S[a=1]", "S[a]"}, {"S[(x)A]", "S[A]"}};
  for (const auto& pair : pairs) {
    CAPTURE(pair.first);
    CHECK_FALSE(same_tree(parse(pair.first), parse(pair.second)));
  }
}

TEST_CASE("a tree that a program made may hold what no text holds without quotes") {
  for (const std::string& value : {std::string("{"), std::string("{1}"), std::string(1, '\0')}) {
    Expr tree = parse("A(x)");
    tree.args[0].value = value;
    CHECK_EQ(print(tree), "A('" + value + "')");
  }
}

namespace {

using Parameters = std::map<std::string, std::string>;

Expr substituted(const Expr& tree, const Parameters& parameters, std::vector<std::string>* used = nullptr) {
  const auto lookup = [&](const std::string& key) {
    const auto entry = parameters.find(key);
    return entry == parameters.end() ? nullptr : &entry->second;
  };
  return substitute(tree, lookup, used);
}

std::string substitution_error(const std::string& text, const Parameters& parameters) {
  try {
    substituted(parse(text), parameters);
  } catch (const SyntaxError& error) {
    return message_with_caret(error.what(), text, error.span, "", error.hint);
  }
  return "no error";
}

}  // namespace

TEST_CASE("templates are replaced in names and bare values, not in quotes") {
  const Parameters parameters = {{"node_name", "det-1"}, {"i", "0"}, {"dir", "/my models"}, {"unused", ""}};
  std::vector<std::string> used;
  const Expr tree = parse("Forward[node.{node_name}.{i},A({dir}/{node_name}.onnx,'{dir}',k={i}),s={i},(x{i})B]");
  const Expr result = substituted(tree, parameters, &used);
  CHECK_EQ(print(result), "Forward[node.det-1.0,A('/my models/det-1.onnx','{dir}',k=0),s=0,(x0)B]");
  CHECK(used == std::vector<std::string>{"node_name", "i", "dir"});
  CHECK_EQ(print(tree), "Forward[node.{node_name}.{i},A({dir}/{node_name}.onnx,'{dir}',k={i}),s={i},(x{i})B]");
}

TEST_CASE("a template that is not well-formed, in a tree that a program made, is refused") {
  Expr tree = parse("A");
  tree.name = "{";
  CHECK_THROWS_WITH_AS(substituted(tree, {}), "bad template in \"{\"", SyntaxError);
  tree.name = "{1}";
  CHECK_THROWS_WITH_AS(substituted(tree, {}), "bad template in \"{1}\"", SyntaxError);
}

TEST_CASE("the value of a parameter is text, not another template") {
  const Parameters parameters = {{"a", "{b}"}, {"b", "never"}};
  const Expr once = substituted(parse("A({a})"), parameters);
  CHECK_EQ(once.args[0].value, "{b}");
  CHECK_EQ(print(substituted(once, parameters)), "A('{b}')");
}

TEST_CASE("a parameter may bring a name with its distribution") {
  const Expr tree = substituted(parse("{x}"), {{"x", "hami-image::ResizeMat"}});
  CHECK_EQ(tree.distribution, "hami-image");
  CHECK_EQ(tree.name, "ResizeMat");
}

TEST_CASE("a template without a value is pointed at") {
  CHECK_EQ(substitution_error("S[A,x :: B{q}c]", {}),
           "{q} has no value\n"
           "  in  S[A,x :: B{q}c]\n"
           "                ^^^\n"
           "  set q in the node or in [global]");
  CHECK_EQ(substitution_error("A(k=/m/{q})", {}),
           "{q} has no value\n"
           "  in  A(k=/m/{q})\n"
           "             ^^^\n"
           "  set q in the node or in [global]");
}

TEST_CASE("a name that is none after replacement is refused") {
  CHECK_EQ(substitution_error("S[node.{x}]", {{"x", "a b"}}),
           "node.{x} becomes \"node.a b\", which is not a valid name\n"
           "  in  S[node.{x}]\n"
           "        ^^^^^^^^\n"
           "  a value that replaces {key} in a name must be a name or part of one");
  CHECK_EQ(substitution_error("{x}", {{"x", ""}}),
           "{x} becomes \"\", which is not a valid name\n"
           "  in  {x}\n"
           "      ^^^\n"
           "  a value that replaces {key} in a name must be a name or part of one");
  CHECK_EQ(substitution_error("d::{x}", {{"x", "a.b"}}),
           "{x} becomes \"d::a.b\", which is not a valid name\n"
           "  in  d::{x}\n"
           "      ^^^^^^\n"
           "  a value that replaces {key} in a name must be a name or part of one");
}
