// Declared parameters: their text form, and what users may write for each type.
#include <doctest/doctest.h>

#include <clocale>
#include <limits>
#include <string>
#include <vector>

#include "lang/params.hpp"
#include "lang/units.hpp"
#include "value/error.hpp"

using namespace hami;

namespace {

ParamSpec spec(const std::string& text) { return parse_param_specs(text).at(0); }

Value coerced(const std::string& declared, const Value& given) { return coerce_param(spec(declared), given, "Owner"); }

std::string refusal(const std::string& declared, const Value& given) {
  try {
    coerced(declared, given);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kConfig);
    return error.message();
  }
  return "no error";
}

std::string declaration_error(const std::string& text) {
  try {
    parse_param_specs(text);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInternal);
    return error.message();
  }
  return "no error";
}

std::vector<std::string> texts(const Value& list) {
  Params params;
  params.set("l", list);
  return params.get<std::vector<std::string>>("l");
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("declarations carry name, type, default, choices and range") {
  const std::vector<ParamSpec> specs = parse_param_specs(
      "model: path; max: int = 1 {1..64}; device: str = 'cpu' {cpu,cuda} 'where it; runs'; post: str? \"after\";"
      "wait: duration=2s;");
  REQUIRE_EQ(specs.size(), 5u);
  CHECK_EQ(specs[0].name, "model");
  CHECK(specs[0].type == ParamType::kPath);
  CHECK(specs[0].required);
  CHECK_FALSE(specs[1].required);
  CHECK_EQ(specs[1].fallback.as_int(), 1);
  CHECK_EQ(*specs[1].least, 1.0);
  CHECK_EQ(*specs[1].most, 64.0);
  CHECK_EQ(specs[2].fallback.as_text(), "cpu");
  CHECK_EQ(specs[2].fallback_text, "\"cpu\"");
  CHECK(specs[2].choices == std::vector<std::string>{"cpu", "cuda"});
  CHECK_EQ(specs[2].help, "where it; runs");
  CHECK_FALSE(specs[3].required);
  CHECK(specs[3].fallback.is_none());
  CHECK_EQ(specs[3].help, "after");
  CHECK_EQ(specs[4].help, "");
  CHECK_EQ(specs[4].fallback.as_float(), 2000.0);
  CHECK(parse_param_specs(" ").empty());
}

TEST_CASE("a choice with two dots is a range, but that of a text or of a path is a text") {
  for (const char* const type : {"str", "path", "file", "library"}) {
    CAPTURE(type);
    const ParamSpec found = spec(std::string("p: ") + type + "? {a..b}");
    CHECK(found.choices == std::vector<std::string>{"a..b"});
    CHECK_FALSE(found.least.has_value());
  }
  CHECK_EQ(*spec("p: int? {1..2}").most, 2.0);
}

TEST_CASE("a parameter may have other spellings") {
  const std::vector<ParamSpec> specs = parse_param_specs("width|resize_w | w: int = 1 {1..} 'pixels'; height: int");
  CHECK(specs[0].spellings() == std::vector<std::string>{"width", "resize_w", "w"});
  CHECK_EQ(specs[0].help, "pixels");
  CHECK(specs[1].spellings() == std::vector<std::string>{"height"});
  CHECK_EQ(show_param(specs[0]), "width: int = 1 {1..}");
  CHECK_EQ(declaration_error("a|b: int; c|b: int"),
           "declared parameters \"a|b: int; c|b: int\": \"b\" is declared twice");
  CHECK_EQ(declaration_error("a|: int"), "declared parameters \"a|: int\": \"\" is not a valid parameter name");
}

TEST_CASE("a parameter is shown as users read it") {
  const auto shown = [](const std::string& text) { return show_param(spec(text)); };
  CHECK_EQ(shown("model: path"), "model: path");
  CHECK_EQ(shown("model: path 'the file'"), "model: path");
  CHECK_EQ(shown("device: str = 'cpu'"), "device: str = \"cpu\"");
  CHECK_EQ(shown("mode: str = a {a,b}"), "mode: str = \"a\" {a,b}");
  CHECK_EQ(shown("post: str?"), "post: str = None");
  CHECK_EQ(shown("max: int = 1 {1..64}"), "max: int = 1 {1..64}");
  CHECK_EQ(shown("max: int {..64}"), "max: int {..64}");
  CHECK_EQ(shown("wait: duration = 1500 {0..1min}"), "wait: duration = 1500ms {0ms..1min}");
  CHECK_EQ(shown("room: bytesize = 65536k"), "room: bytesize = 64MiB");
  CHECK_EQ(shown("f: float = 1"), "f: float = 1.0");
  CHECK_EQ(shown("b: bool = yes"), "b: bool = true");
  CHECK_EQ(shown("l: list = 'a, b'"), "l: list = [\"a\", \"b\"]");
  CHECK_EQ(shown("wait: duration?"), "wait: duration = None");
  CHECK_EQ(shown("room: bytesize?"), "room: bytesize = None");
  CHECK_EQ(shown("room: bytesize {..1MiB}"), "room: bytesize {..1MiB}");
  CHECK_EQ(shown("n: int {..auto}"), "n: int {..auto}");
  CHECK_EQ(shown("s: str {a..b}"), "s: str {a..b}");
  CHECK_EQ(shown("p: path {a..b}"), "p: path {a..b}");
  ParamSpec from_python;
  from_python.name = "step";
  from_python.type = ParamType::kInt;
  from_python.required = false;
  from_python.fallback = Value(1);
  CHECK_EQ(show_param(from_python), "step: int = 1");
  from_python.fallback = Value();
  from_python.type = ParamType::kDuration;
  CHECK_EQ(show_param(from_python), "step: duration = None");
  from_python.type = ParamType::kByteSize;
  CHECK_EQ(show_param(from_python), "step: bytesize = None");
}

TEST_CASE("a wrong declaration is the author's error, with the whole text") {
  CHECK_EQ(declaration_error("max: in = 1"), "declared parameters \"max: in = 1\": type \"in\" of \"max\" is unknown");
  CHECK_EQ(declaration_error("max int"), "declared parameters \"max int\": a type is missing after \"max\"");
  CHECK_EQ(declaration_error("9: int"), "declared parameters \"9: int\": \"9\" is not a valid parameter name");
  CHECK_EQ(declaration_error("a: int; a: str"), "declared parameters \"a: int; a: str\": \"a\" is declared twice");
  CHECK_EQ(declaration_error("a: int b: str"), "declared parameters \"a: int b: str\": unexpected \"b\"");
  CHECK_EQ(declaration_error("a: int 'what' 'for'"), "declared parameters \"a: int 'what' 'for'\": unexpected \"'\"");
  CHECK_EQ(declaration_error("a: int ="), "declared parameters \"a: int =\": a default is missing for \"a\"");
  CHECK_EQ(declaration_error("a: int? = 1"), "declared parameters \"a: int? = 1\": \"a\" has both \"?\" and a default");
  CHECK_EQ(declaration_error("a: int = x"), "declared parameters \"a: int = x\": parameter \"a\" takes int, got \"x\"");
  CHECK_EQ(declaration_error("a: str = c {d,e}"),
           "declared parameters \"a: str = c {d,e}\": parameter \"a\" takes \"d\" or \"e\", got \"c\"");
  CHECK_EQ(declaration_error("a: int {x}"), "declared parameters \"a: int {x}\": parameter \"a\" takes int, got \"x\"");
  CHECK_EQ(declaration_error("a: str {d,"), "declared parameters \"a: str {d,\": a choice is missing for \"a\"");
  CHECK_EQ(declaration_error("a: str {d"), "declared parameters \"a: str {d\": the choices of \"a\" are never closed");
  CHECK_EQ(declaration_error("a: list {1..2}"),
           "declared parameters \"a: list {1..2}\": a range needs a number: \"a\"");
  CHECK_EQ(declaration_error("a: str = 'x"), "declared parameters \"a: str = 'x\": quote ' is never closed");
  const std::string longer = "a: int '" + std::string(300, 'i') + "'; b";
  CHECK_EQ(declaration_error(longer),
           "declared parameters \"" + longer.substr(0, 200) + "…\": a type is missing after \"b\"");
}

TEST_CASE("an int is an int however it is written") {
  for (const Value& given :
       {Value(4), Value("4"), Value(4.0), Value(" 4 "), Value("4.0"), Value("+4"), Value("0.4e1")}) {
    CHECK_EQ(coerced("x: int", given).as_int(), 4);
  }
  CHECK_EQ(coerced("x: int", "9223372036854775807").as_int(), std::numeric_limits<std::int64_t>::max());
  CHECK_EQ(coerced("x: int", "-9223372036854775808").as_int(), std::numeric_limits<std::int64_t>::min());
  CHECK_EQ(coerced("x: int", "-9007199254740993").as_int(), -9007199254740993);  // no float has this value
  CHECK_EQ(refusal("max: int", "four"), "parameter \"max\" of Owner takes int, got \"four\"");
  CHECK_EQ(refusal("max: int", 4.5), "parameter \"max\" of Owner takes int, got 4.5");
  CHECK_EQ(refusal("max: int", true), "parameter \"max\" of Owner takes int, got true");
  CHECK_EQ(refusal("max: int", Value()), "parameter \"max\" of Owner takes int, got None");
  CHECK_EQ(refusal("max: int", 9223372036854775808.0),
           "parameter \"max\" of Owner takes int, got 9.223372036854776e+18");
  for (const char* bad :
       {"", " ", "4x", "0x10", "1_000", "4 4", "9223372036854775808", "1e400", "nan", "inf", "--4", "."}) {
    CAPTURE(bad);
    CHECK_NE(refusal("max: int", bad), "no error");
  }
}

TEST_CASE("booleans have eight words and no more") {
  for (const Value& given : {Value(true), Value(1), Value("1"), Value("True"), Value("YES"), Value("on")}) {
    CHECK(coerced("x: bool", given).as_bool());
  }
  for (const Value& given : {Value(false), Value(0), Value("0"), Value("false"), Value("No"), Value("OFF")}) {
    CHECK_FALSE(coerced("x: bool", given).as_bool());
  }
  CHECK_EQ(refusal("x: bool", "maybe"),
           "parameter \"x\" of Owner takes bool (true, false, yes, no, on, off, 1 or 0), got \"maybe\"");
  CHECK_EQ(refusal("x: bool", 2), "parameter \"x\" of Owner takes bool (true, false, yes, no, on, off, 1 or 0), got 2");
  CHECK_EQ(refusal("x: bool", 1.0),
           "parameter \"x\" of Owner takes bool (true, false, yes, no, on, off, 1 or 0), got 1.0");
}

TEST_CASE("a float takes numbers and their texts") {
  CHECK_EQ(coerced("x: float", 2).as_float(), 2.0);
  CHECK_EQ(coerced("x: float", "1e-3").as_float(), 0.001);
  CHECK_EQ(coerced("x: float", ".5").as_float(), 0.5);
  CHECK_EQ(coerced("x: float", "-inf").as_float(), -kInfinity);
  CHECK_EQ(coerced("x: float", "+1.5").as_float(), 1.5);
  CHECK_EQ(coerced("x: float", "15E-1").as_float(), 1.5);
  CHECK_EQ(coerced("x: float", "0.15e+1").as_float(), 1.5);
  CHECK_NE(refusal("x: float", "-."), "no error");
  CHECK_EQ(refusal("x: float", "1,5"), "parameter \"x\" of Owner takes float, got \"1,5\"");
  CHECK_EQ(refusal("x: float", true), "parameter \"x\" of Owner takes float, got true");
}

TEST_CASE("numbers do not follow the locale of the process") {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const bool has_comma_locale = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  INFO("a locale with a decimal comma is installed: " << has_comma_locale);
  CHECK_EQ(coerced("x: float", "1.5").as_float(), 1.5);
  CHECK_EQ(show_float(1.5), "1.5");
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("a str takes numbers as their text") {
  CHECK_EQ(coerced("x: str", "a").as_text(), "a");
  CHECK_EQ(coerced("x: str", 4).as_text(), "4");
  CHECK_EQ(coerced("x: path", 0.1).as_text(), "0.1");
  CHECK_EQ(coerced("x: str", true).as_text(), "true");
  CHECK_EQ(refusal("x: str", make_bytes("a")), "parameter \"x\" of Owner takes str, got bytes");
  CHECK_EQ(refusal("x: path", make_list({Value(1), Value("a")})),
           "parameter \"x\" of Owner takes path, got [1, \"a\"]");
  const std::string wide(60, 'a');  // of a list, as many parts are shown as reach this width
  CHECK_EQ(refusal("x: str", make_list({Value(wide)})), "parameter \"x\" of Owner takes str, got [\"" + wide + "\"]");
  CHECK_EQ(refusal("x: str", make_list({Value(wide), Value(1)})),
           "parameter \"x\" of Owner takes str, got [\"" + wide + "\", …]");
}

TEST_CASE("a duration has a unit; milliseconds may be a bare number") {
  const auto read = [](const Value& given) { return coerced("x: duration", given).as_float(); };
  for (const Value& bare : {Value(5), Value("5"), Value(5.0)}) {
    CHECK_EQ(coerced("x: milliseconds", bare).as_float(), 5.0);
    CHECK_NE(refusal("x: duration", bare), "no error");
  }
  for (const Value& zero : {Value(0), Value("0"), Value(0.0)}) CHECK_EQ(read(zero), 0.0);
  CHECK_EQ(coerced("x: milliseconds", "2s").as_float(), 2000.0);
  CHECK_EQ(read("5ms"), 5.0);
  CHECK_EQ(read("2S"), 2000.0);
  CHECK_EQ(read("1.5 min"), 90000.0);
  CHECK_EQ(read("1h"), 3600000.0);
  CHECK_EQ(read("250us"), 0.25);
  CHECK_EQ(read("+5ms"), 5.0);
  CHECK_EQ(
      refusal("x: duration", "soon"),
      "parameter \"x\" of Owner takes a duration with a unit, as \"5ms\", \"2s\", \"1min\" or \"1h\", got \"soon\"");
  CHECK_EQ(refusal("x: milliseconds", "soon"),
           "parameter \"x\" of Owner takes a duration, as 5 (milliseconds), \"5ms\" or \"2s\", got \"soon\"");
  for (const Value& bad : {Value(-1), Value(kInfinity), Value("-1s"), Value("1m"), Value("inf"), Value("s"),
                           Value("1e400"), Value("1e308h"), Value(true)}) {
    CHECK_NE(refusal("x: duration", bad), "no error");
  }
  for (const Value& bad : {Value(-1), Value(kInfinity)}) CHECK_NE(refusal("x: milliseconds", bad), "no error");
}

TEST_CASE("a duration that is negative or infinite has no value") {
  CHECK_FALSE(read_duration("-1s").has_value());
  CHECK_FALSE(read_duration("1e308h").has_value());
}

TEST_CASE("byte sizes are bytes or carry a unit") {
  const auto read = [](const Value& given) { return coerced("x: bytesize", given).as_int(); };
  CHECK_EQ(read(1024), 1024);
  CHECK_EQ(read("1024"), 1024);
  CHECK_EQ(read(1024.0), 1024);
  CHECK_EQ(read("512k"), 524288);
  CHECK_EQ(read("64MiB"), 67108864);
  CHECK_EQ(read("2 GB"), 2000000000);
  CHECK_EQ(read("1.5gib"), 1610612736);
  CHECK_EQ(read("9007199254740993B"), 9007199254740993);
  CHECK_EQ(
      refusal("x: bytesize", "big"),
      "parameter \"x\" of Owner takes bytesize (bytes, or with a unit: \"512k\", \"64MiB\", \"2GB\"), got \"big\"");
  for (const Value& bad : {Value(-1), Value(1.5), Value("1.5"), Value("-1k"), Value("9e18k"), Value("1e400k"),
                           Value("5xb"), Value("MiB"), Value(true)}) {
    CHECK_NE(refusal("x: bytesize", bad), "no error");
  }
}

TEST_CASE("a list takes a list, or text split at commas") {
  using Texts = std::vector<std::string>;
  CHECK(texts(coerced("x: list", "a, b c ,d,")) == Texts{"a", "b c", "d"});
  CHECK(texts(coerced("x: list", "")) == Texts{});
  CHECK(texts(coerced("x: list", make_list({Value("a,b"), Value(2), Value(0.5)}))) == Texts{"a,b", "2", "0.5"});
  CHECK(texts(coerced("x: list", "a,, b")) == Texts{"a", "b"});
  CHECK(texts(coerced("x: list", false)) == Texts{});
  CHECK_EQ(refusal("x: list", true), "parameter \"x\" of Owner takes list, got true");
  CHECK_EQ(refusal("x: str", make_list({make_list({Value(1)})})), "parameter \"x\" of Owner takes str, got [[…]]");
  CHECK_EQ(refusal("x: list", 4), "parameter \"x\" of Owner takes list, got 4");
}

TEST_CASE("None is taken only where it is the default") {
  CHECK(coerced("x: str?", Value()).is_none());
  CHECK_EQ(refusal("x: str", Value()), "parameter \"x\" of Owner takes str, got None");
  CHECK_EQ(refusal("x: str = a", Value()), "parameter \"x\" of Owner takes str, got None");
}

TEST_CASE("choices and ranges are enforced and named") {
  CHECK_EQ(refusal("device: str {cpu,cuda}", "cdua"),
           "parameter \"device\" of Owner takes \"cpu\" or \"cuda\", got \"cdua\"; did you mean \"cuda\"?");
  CHECK_EQ(refusal("n: int {1,2,4}", 3), "parameter \"n\" of Owner takes 1, 2 or 4, got 3");
  CHECK_EQ(coerced("n: int {1,2,4}", "4.0").as_int(), 4);
  CHECK_EQ(coerced("t: duration {1s,2s}", "1000ms").as_float(), 1000.0);
  CHECK_EQ(refusal("l: list {a,b}", "a,c"), "parameter \"l\" of Owner takes a list of \"a\" or \"b\", got \"a,c\"");
  CHECK(texts(coerced("l: list {a,b}", "b,a")) == std::vector<std::string>{"b", "a"});
  CHECK_EQ(refusal("l: list {a,b}", make_list({Value()})),
           "parameter \"l\" of Owner takes a list of \"a\" or \"b\", got [None]");
  CHECK_EQ(refusal("b: bool {true}", false), "parameter \"b\" of Owner takes true, got false");
  CHECK_EQ(refusal("t: duration {1s..1min}", "2min"),
           "parameter \"t\" of Owner takes duration from 1s to 1min, got \"2min\"");
  CHECK_EQ(refusal("n: int {1..16}", 17), "parameter \"n\" of Owner takes int from 1 to 16, got 17");
  CHECK_EQ(refusal("n: float {0..}", -0.5), "parameter \"n\" of Owner takes float of at least 0.0, got -0.5");
  CHECK_EQ(refusal("n: bytesize {..1MiB}", "2MiB"),
           "parameter \"n\" of Owner takes bytesize of at most 1MiB, got \"2MiB\"");
  CHECK_EQ(refusal("n: float {0..1}", std::numeric_limits<double>::quiet_NaN()),
           "parameter \"n\" of Owner takes float from 0.0 to 1.0, got nan");
}

TEST_CASE("an int whose range ends with auto takes that word too") {
  CHECK_EQ(show_param(spec("n: int = auto {1..8,auto}")), "n: int = \"auto\" {1..8,auto}");
  CHECK_EQ(coerced("n: int = auto {1..8,auto}", "auto").as_text(), "auto");
  CHECK_EQ(coerced("n: int = auto {1..8,auto}", 8).as_int(), 8);
  CHECK_EQ(refusal("n: int = auto {1..8,auto}", 9),
           "parameter \"n\" of Owner takes int from 1 to 8 or \"auto\", got 9");
  CHECK_EQ(show_param(spec("max: int? {1..auto}")), "max: int = None {1..auto}");
  CHECK_EQ(coerced("max: int? {1..auto}", "auto").as_text(), "auto");
  CHECK_EQ(coerced("max: int? {1..auto}", "16").as_int(), 16);
  CHECK_EQ(refusal("max: int? {1..auto}", 0), "parameter \"max\" of Owner takes int of at least 1 or \"auto\", got 0");
  CHECK_EQ(refusal("max: int? {1..auto}", "aut"),
           "parameter \"max\" of Owner takes int of at least 1 or \"auto\", got \"aut\"");
  CHECK_EQ(refusal("max: int? {1..}", "auto"), "parameter \"max\" of Owner takes int of at least 1, got \"auto\"");
  CHECK_EQ(declaration_error("f: float {0..auto}"),
           "declared parameters \"f: float {0..auto}\": parameter \"f\" takes float, got \"auto\"");
}

TEST_CASE("numbers and units print as short as they read back") {
  CHECK_EQ(show_float(0.1), "0.1");
  CHECK_EQ(show_float(4), "4.0");
  CHECK_EQ(show_float(1e300), "1e+300");
  CHECK_EQ(show_float(1.0 / 3), "0.3333333333333333");
  CHECK_EQ(show_float(0.1 + 0.2), "0.30000000000000004");
  CHECK_EQ(show_float(100'000), "100000.0");
  CHECK_EQ(show_float(1'000'000), "1e+06");
  CHECK_EQ(show_float(kInfinity), "inf");
  CHECK_EQ(show_float(-kInfinity), "-inf");
  CHECK_EQ(show_duration(0), "0ms");
  CHECK_EQ(show_duration(0.009), "0.009ms");  // 9 * 1e-3 is another number
  CHECK_EQ(show_duration(90000), "90s");
  CHECK_EQ(show_duration(7200000), "2h");
  CHECK_EQ(show_duration(0.25), "250us");
  CHECK_EQ(show_bytesize(0), "0B");
  CHECK_EQ(show_bytesize(1536), "1536B");
  CHECK_EQ(show_bytesize(std::int64_t{3} << 30), "3GiB");
}

TEST_CASE("parameters read back as C++ types") {
  Params params;
  params.set("i", 3);
  params.set("f", 0.5);
  params.set("s", "text");
  params.set("none", Value());
  CHECK_EQ(params.get<std::int64_t>("i"), 3);
  CHECK_EQ(params.get<double>("i"), 3.0);
  CHECK_EQ(params.get<double>("f"), 0.5);
  CHECK_EQ(params.get<std::string>("s"), "text");
  CHECK_FALSE(params.get<std::optional<std::string>>("none").has_value());
  CHECK_EQ(*params.get<std::optional<std::int64_t>>("i"), 3);
  CHECK(params.find("absent") == nullptr);
  CHECK_THROWS_WITH(params.get<bool>("absent"), "no parameter \"absent\" is declared");
  CHECK_THROWS_WITH(params.get<bool>("i"), "parameter \"i\" holds int, not bool");
  params.set("l", make_list({make_list({})}));
  CHECK_THROWS_WITH(params.get<std::int64_t>("f"), "parameter \"f\" holds float, not int");
  CHECK_THROWS_WITH(params.get<double>("s"), "parameter \"s\" holds str, not float");
  CHECK_THROWS_WITH(params.get<std::vector<std::string>>("l"), "parameter \"l\" holds list, not list of str");
  CHECK_THROWS_WITH(params.get<std::string>("none"), "parameter \"none\" holds None, not str");
}

TEST_CASE("types have names both ways") {
  for (const char* name : {"bool", "int", "float", "str", "path", "list", "duration", "milliseconds", "bytesize"}) {
    CAPTURE(name);
    REQUIRE(param_type_of(name).has_value());
    CHECK_EQ(std::string(param_type_name(*param_type_of(name))), name);
  }
  CHECK_FALSE(param_type_of("Int").has_value());
  CHECK_EQ(std::string(param_type_name(static_cast<ParamType>(99))), "unknown");
}
