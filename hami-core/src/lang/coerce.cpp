// coerce_param: conversion of configured values to the declared type.

#include <algorithm>
#include <cmath>

#include "lang/params.hpp"
#include "lang/units.hpp"
#include "value/api.hpp"

namespace hami {
namespace {

template <class T>
std::optional<Value> as_value(std::optional<T> read) {
  if (!read) return std::nullopt;
  return Value(*read);
}

std::optional<Value> read_int_value(const Value& given) {
  switch (given.kind()) {
    case Kind::kInt: return given;
    case Kind::kFloat: return as_value(whole_number(given.as_float()));
    case Kind::kStr: return as_value(read_integer(given.as_text()));
    default: return std::nullopt;
  }
}

std::optional<Value> read_bool_value(const Value& given) {
  switch (given.kind()) {
    case Kind::kBool: return given;
    case Kind::kInt: return as_value(read_bool(std::to_string(given.as_int())));
    case Kind::kStr: return as_value(read_bool(given.as_text()));
    default: return std::nullopt;
  }
}

std::optional<Value> read_float_value(const Value& given) {
  switch (given.kind()) {
    case Kind::kInt:
    case Kind::kFloat: return Value(given.as_float());
    case Kind::kStr: return as_value(read_number(given.as_text()));
    default: return std::nullopt;
  }
}

std::optional<Value> read_text_value(const Value& given) {
  if (given.kind() == Kind::kStr) return given;
  if (given.is_none() || given.is_counted()) return std::nullopt;
  return Value(show_value(given));
}

// A number without a unit is milliseconds where that is allowed; 0 needs no unit.
std::optional<Value> read_duration_value(const Value& given, bool bare_number) {
  std::optional<double> milliseconds;
  bool has_unit = false;
  if (given.kind() == Kind::kStr) {
    milliseconds = read_duration(given.as_text());
    has_unit = !read_number(given.as_text());
  } else if (given.kind() == Kind::kInt || given.kind() == Kind::kFloat) {
    milliseconds = given.as_float();
  }
  if (!milliseconds || !(*milliseconds >= 0) || !std::isfinite(*milliseconds)) return std::nullopt;
  if (!has_unit && !bare_number && *milliseconds != 0) return std::nullopt;
  return Value(*milliseconds);
}

std::optional<Value> read_bytesize_value(const Value& given) {
  if (given.kind() == Kind::kStr) return as_value(read_bytesize(given.as_text()));
  std::optional<Value> bytes = read_int_value(given);
  return bytes && bytes->as_int() >= 0 ? bytes : std::nullopt;
}

std::optional<Value> read_list_value(const Value& given) {
  if (given.kind() == Kind::kList) return given;
  if (given.kind() == Kind::kBool && !given.as_bool()) return make_list({});
  if (given.kind() != Kind::kStr) return std::nullopt;
  std::vector<Value> items;
  for (std::string_view rest = given.as_text(); !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = trim(rest.substr(0, comma));
    if (!item.empty()) items.emplace_back(item);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return make_list(std::move(items));
}

std::optional<Value> read_as(ParamType type, const Value& given) {
  switch (type) {
    case ParamType::kBool: return read_bool_value(given);
    case ParamType::kInt: return read_int_value(given);
    case ParamType::kFloat: return read_float_value(given);
    case ParamType::kStr:
    case ParamType::kPath:
    case ParamType::kFile:
    case ParamType::kLibrary: return read_text_value(given);
    case ParamType::kList: return read_list_value(given);
    case ParamType::kDuration: return read_duration_value(given, false);
    case ParamType::kMilliseconds: return read_duration_value(given, true);
    case ParamType::kByteSize: return read_bytesize_value(given);
  }
  return std::nullopt;
}

bool is_duration(ParamType type) { return type == ParamType::kDuration || type == ParamType::kMilliseconds; }

bool is_number(ParamType type) {
  return type == ParamType::kInt || type == ParamType::kFloat || is_duration(type) || type == ParamType::kByteSize;
}

bool in_range(const ParamSpec& spec, const Value& value) {
  if (!is_number(spec.type)) return true;
  const double number = value.as_float();
  return (!spec.least || number >= *spec.least) && (!spec.most || number <= *spec.most);
}

bool is_choice(const ParamSpec& spec, const Value& value) {
  if (spec.choices.empty()) return true;
  if (spec.type == ParamType::kList) {
    ParamSpec one = spec;
    one.type = ParamType::kStr;
    const ListObject& list = value.as_list();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::optional<Value> item = read_as(one.type, list.at(i));
      if (!item || !is_choice(one, *item)) return false;
    }
    return true;
  }
  const std::string shown = show_value(spec.type, value);
  for (const std::string& choice : spec.choices) {
    const std::optional<Value> allowed =
        read_as(is_duration(spec.type) ? ParamType::kMilliseconds : spec.type, Value(choice));
    if (allowed && show_value(spec.type, *allowed) == shown) return true;
  }
  return false;
}

std::string bound(ParamType type, double number) {
  if (is_duration(type)) return show_duration(number);
  if (type == ParamType::kFloat) return show_float(number);
  const auto whole = static_cast<std::int64_t>(number);
  return type == ParamType::kByteSize ? show_bytesize(whole) : std::to_string(whole);
}

std::string expected(const ParamSpec& spec) {
  if (!spec.choices.empty()) {
    const bool text = !is_number(spec.type) && spec.type != ParamType::kBool;
    std::string all = spec.type == ParamType::kList ? "a list of " : "";
    for (std::size_t i = 0; i < spec.choices.size(); ++i) {
      if (i > 0) all += i + 1 == spec.choices.size() ? " or " : ", ";
      all += text ? in_quotes(spec.choices[i]) : spec.choices[i];
    }
    return all;
  }
  std::string type = param_type_name(spec.type);
  const std::string least = spec.least ? bound(spec.type, *spec.least) : "";
  const std::string most = spec.most ? bound(spec.type, *spec.most) : "";
  const std::string or_auto = spec.takes_auto ? " or " + in_quotes(kAutoWord) : "";
  if (spec.least && spec.most) return type + " from " + least + " to " + most + or_auto;
  if (spec.least) return type + " of at least " + least + or_auto;
  if (spec.most) return type + " of at most " + most;
  switch (spec.type) {
    case ParamType::kBool: return type + " (true, false, yes, no, on, off, 1 or 0)";
    case ParamType::kDuration: return R"(a duration with a unit, as "5ms", "2s", "1min" or "1h")";
    case ParamType::kMilliseconds: return R"(a duration, as 5 (milliseconds), "5ms" or "2s")";
    case ParamType::kByteSize: return type + R"( (bytes, or with a unit: "512k", "64MiB", "2GB"))";
    default: return type;
  }
}

}  // namespace

Value coerce_param(const ParamSpec& spec, const Value& given, std::string_view owner) {
  if (given.is_none() && !spec.required && spec.fallback.is_none()) return given;
  if (spec.takes_auto && given.kind() == Kind::kStr && trim(given.as_text()) == kAutoWord) return Value(kAutoWord);
  const std::optional<Value> value = read_as(spec.type, given);
  if (value && in_range(spec, *value) && is_choice(spec, *value)) return *value;
  std::string message = "parameter " + in_quotes(spec.name);
  if (!owner.empty()) message += " of " + visible(owner);
  message += " takes " + expected(spec) + ", got " + show_value(given);
  if (given.kind() == Kind::kStr) message += did_you_mean(near_names(given.as_text(), spec.choices), true);
  throw Error(ErrorCode::kConfig, std::move(message));
}

std::string show_value(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return value.as_bool() ? "true" : "false";
    case Kind::kInt: return std::to_string(value.as_int());
    case Kind::kFloat: return show_float(value.as_float());
    case Kind::kStr: return in_quotes(value.as_text());
    case Kind::kList: {
      std::string items;
      const ListObject& list = value.as_list();
      for (std::size_t i = 0; i < list.size() && items.size() < 60; ++i) {
        if (i > 0) items += ", ";
        const Value item = list.at(i);
        items += item.kind() == Kind::kList ? "[…]" : show_value(item);
        if (items.size() >= 60 && i + 1 < list.size()) items += ", …";
      }
      return "[" + items + "]";
    }
    default: return kind_name(value.kind());
  }
}

std::string show_value(ParamType type, const Value& value) {
  if (is_duration(type) && value.kind() == Kind::kFloat) return show_duration(value.as_float());
  if (type == ParamType::kByteSize && value.kind() == Kind::kInt) return show_bytesize(value.as_int());
  return show_value(value);
}

}  // namespace hami
