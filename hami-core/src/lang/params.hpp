// Declared parameters of a class: their text form, and the weakly typed reading of what a user wrote.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "value/value.hpp"

namespace hami {

enum class ParamType { kBool, kInt, kFloat, kStr, kPath, kList, kDuration, kMilliseconds, kByteSize };

const char* param_type_name(ParamType type) noexcept;  // "bool", "int", …, "duration", "milliseconds", "bytesize"
std::optional<ParamType> param_type_of(std::string_view name) noexcept;

struct ParamSpec {
  std::string name;
  ParamType type = ParamType::kStr;
  bool required = true;
  Value fallback;                    // the default, already of the right type; none if required or if it is None
  std::string fallback_text;         // as shown to users
  std::vector<std::string> choices;  // empty: anything
  std::optional<double> least;       // of a number, a duration or a bytesize
  std::optional<double> most;
  std::string help;
};

// "model: path 'the file'; max: int = 1 {1..64}; device: str = 'cpu' {cpu,cuda} 'where it runs'": name, type, default,
// choices or a range (either end may be left out), and in quotes what it is for; a `?` after the type makes the default
// None ("post: str?"). Defaults and choices are read as in an expression, with white space before the "{". Throws
// Error(kInternal): the text is the author's, not the user's.
std::vector<ParamSpec> parse_param_specs(std::string_view text);

// One parameter as users read it: `model: path`, `device: str = "cpu"`, `mode: str = "a" {a,b}`, `post: str = None`.
std::string show_param(const ParamSpec& spec);

// A value as messages show it: "four" in quotes, 4, 4.5, true, None, or the name of its kind.
std::string show_value(const Value& value);
// The same for a value of a declared type, in its unit: 5ms, 64MiB. What ParamSpec::fallback_text holds.
std::string show_value(ParamType type, const Value& value);

// What a user wrote, as a value of the declared type: 4, "4" and 4.0 are the same int; 1 0 true false yes no on off in
// any case are booleans; a str or path takes numbers and booleans too, as their text; a duration (read_duration in
// units.hpp) has a unit and is a float of milliseconds; `milliseconds` is a duration that may be a bare number; a bytesize (read_bytesize) an int; a list takes a list, or text split at
// commas, white space around them dropped; a None is taken only where the default is None. Throws Error(kConfig) with
// one line: `parameter "max" of OnnxTensor takes int, got "four"`.
Value coerce_param(const ParamSpec& spec, const Value& given, std::string_view owner);

// Values of the declared parameters of one backend, defaults filled in.
class Params {
 public:
  void set(const std::string& name, Value value);
  const Value* find(const std::string& name) const noexcept;

  // T: bool, int64_t, double, std::string, std::vector<std::string>, or std::optional<…> of these for a default of
  // None. Durations come as double, in milliseconds. Error(kInternal), the author's mistake, if it is not there or is
  // no T.
  template <class T>
  T get(const std::string& name) const;

  auto begin() const noexcept { return values_.begin(); }
  auto end() const noexcept { return values_.end(); }

 private:
  std::map<std::string, Value> values_;
};

}  // namespace hami
