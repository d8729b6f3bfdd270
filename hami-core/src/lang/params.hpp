// Declared parameters of a class: their text form, and the conversion of configured values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "value/api.hpp"

namespace hami {

// Paths: a kFile must exist, a kLibrary has native code and must be on the allow list (lang/allowed_libraries.hpp).
enum class ParamType { kBool, kInt, kFloat, kStr, kPath, kFile, kLibrary, kList, kDuration, kMilliseconds, kByteSize };

constexpr bool is_path(ParamType type) noexcept {
  return type == ParamType::kPath || type == ParamType::kFile || type == ParamType::kLibrary;
}

const char* param_type_name(ParamType type) noexcept;  // "bool", "int", …, "duration", "milliseconds", "bytesize"
std::optional<ParamType> param_type_of(std::string_view name) noexcept;

inline constexpr const char* kAutoWord = "auto";

struct ParamSpec {
  std::string name;
  std::vector<std::string> aliases = {};  // other spellings of the name that configurations may use
  ParamType type = ParamType::kStr;
  bool required = true;
  Value fallback;                    // the default, already of the right type; none if required or if it is None
  std::string fallback_text;         // as shown to users
  std::vector<std::string> choices;  // empty: anything
  std::optional<double> least;       // of a number, a duration or a bytesize
  std::optional<double> most;
  bool takes_auto = false;  // the range is `{1..auto}` or `{1..8,auto}`: also the text "auto" is valid, and stays text
  std::string help;

  // The name, then the aliases.
  std::vector<std::string> spellings() const;
};

// Parses "model: path 'the file'; max: int = 1 {1..64}; device: str = 'cpu' {cpu,cuda} 'where it runs'": name, type,
// default, choices or a range (either end may be missing; that of an int may be `1..auto` or `1..8,auto`), and in quotes a help text.
// `|` separates aliases from the name ("width|resize_w: int"). `?` after the type makes the default None ("post: str?"). Defaults and choices are read as in an expression, with white space before the "{". Throws
// Error(kInternal): the text comes from the backend's author, not from a user.
std::vector<ParamSpec> parse_param_specs(std::string_view text);

// One parameter for users: `model: path`, `device: str = "cpu"`, `mode: str = "a" {a,b}`, `post: str = None`.
std::string show_param(const ParamSpec& spec);

// A value for messages: "four" in quotes, 4, 4.5, true, None, or the name of its kind.
std::string show_value(const Value& value);
// A value of a declared type, in its unit: 5ms, 64MiB. The format of ParamSpec::fallback_text.
std::string show_value(ParamType type, const Value& value);

// Converts a configured value to the declared type: 4, "4" and 4.0 are the same int; 1 0 true false yes no on off in any
// case are booleans; a str or path accepts numbers and booleans as their text; a duration (read_duration in units.hpp) has a
// unit and becomes a float of milliseconds; `milliseconds` is a duration that may be a bare number; a bytesize
// (read_bytesize) becomes an int; a list accepts a list, or text that is split at commas; None is accepted only where the
// default is None. Throws Error(kConfig) with one line: `parameter "max" of OnnxTensor takes int, got "four"`.
Value coerce_param(const ParamSpec& spec, const Value& given, std::string_view owner);

// The values of the declared parameters of one backend, including defaults.
class Params {
 public:
  void set(const std::string& name, Value value);
  const Value* find(const std::string& name) const noexcept;

  // T: bool, int64_t, double, std::string, std::vector<std::string>, or std::optional<…> of these for a default of
  // None. Durations are double, in milliseconds. Error(kInternal), a mistake of the backend's author, if the parameter does
  // not exist or is not a T.
  template <class T>
  T get(const std::string& name) const;

  auto begin() const noexcept { return values_.begin(); }
  auto end() const noexcept { return values_.end(); }

 private:
  std::map<std::string, Value> values_;
};

}  // namespace hami
