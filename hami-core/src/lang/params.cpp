// Declared parameters: their text form, and access to their values as C++ types.
#include "lang/params.hpp"

#include <iterator>
#include <set>

#include "lang/expression.hpp"
#include "lang/scanner.hpp"
#include "lang/units.hpp"

namespace hami {

// ---- The text form of declared parameters, for authors and users.

namespace {

struct TypeName {
  ParamType type;
  const char* name;
};

constexpr TypeName kTypeNames[] = {
    {ParamType::kBool, "bool"},         {ParamType::kInt, "int"},
    {ParamType::kFloat, "float"},       {ParamType::kStr, "str"},
    {ParamType::kPath, "path"},         {ParamType::kLibrary, "library"},
    {ParamType::kFile, "file"},         {ParamType::kList, "list"},
    {ParamType::kDuration, "duration"}, {ParamType::kMilliseconds, "milliseconds"},
    {ParamType::kByteSize, "bytesize"},
};

class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : in_(text) {}

  std::vector<ParamSpec> read_all() {
    std::vector<ParamSpec> specs;
    std::set<std::string> names;
    while (!in_.at_end()) {
      specs.push_back(read());
      for (const std::string& name : specs.back().spellings())
        if (!names.insert(name).second) fail(in_quotes(name) + " is declared twice");
      if (!in_.take(";") && !in_.at_end()) fail("unexpected " + in_quotes(in_.text(in_.next_thing())));
    }
    return specs;
  }

 private:
  // Authors may declare a duration without a unit, in milliseconds; plugins that were built with ABI 1.0 do.
  static ParamSpec of_author(ParamSpec spec) {
    if (spec.type == ParamType::kDuration) spec.type = ParamType::kMilliseconds;
    return spec;
  }

  [[noreturn]] static void fail(const std::string& why) { throw SyntaxError({}, why); }

  ParamSpec read() {
    ParamSpec spec;
    spec.name = read_name();
    while (in_.take("|")) spec.aliases.push_back(read_name());
    if (!in_.take(":")) fail("a type is missing after " + in_quotes(spec.name));
    const std::string_view type_name = in_.text(in_.take_word());
    const std::optional<ParamType> type = param_type_of(type_name);
    if (!type) fail("type " + in_quotes(type_name) + " of " + in_quotes(spec.name) + " is unknown");
    spec.type = *type;
    const bool nullable = in_.take("?");
    Arg fallback;
    const bool has_fallback = in_.take("=");
    if (has_fallback && !in_.take_value(fallback)) fail("a default is missing for " + in_quotes(spec.name));
    if (has_fallback && nullable) fail(in_quotes(spec.name) + " has both \"?\" and a default");
    if (in_.take("{")) read_choices(spec);
    if (in_.at_quote()) spec.help = read_help();
    spec.required = !has_fallback && !nullable;
    if (nullable) spec.fallback_text = "None";
    if (has_fallback) {
      spec.fallback = coerce_param(of_author(spec), Value(fallback.value), "");
      spec.fallback_text = show_value(spec.type, spec.fallback);
    }
    return spec;
  }

  std::string read_name() {
    const std::string name(in_.text(in_.take_word()));
    if (!is_ident(name)) fail(in_quotes(name) + " is not a valid parameter name");
    return name;
  }

  std::string read_help() {
    Arg help;
    in_.take_value(help);
    return help.value;
  }

  void read_choices(ParamSpec& spec) {
    do {
      Arg choice;
      if (!in_.take_value(choice)) fail("a choice is missing for " + in_quotes(spec.name));
      spec.choices.push_back(choice.value);
    } while (in_.take(","));
    if (!in_.take("}")) fail("the choices of " + in_quotes(spec.name) + " are never closed");
    const bool or_auto = spec.choices.size() == 2 && spec.choices[1] == kAutoWord;
    const std::string only = spec.choices.size() == 1 || or_auto ? spec.choices[0] : "";
    const std::size_t dots = only.find("..");
    const bool is_text = spec.type == ParamType::kStr || is_path(spec.type);
    if (dots != std::string::npos && !is_text) {
      spec.choices.clear();
      spec.least = read_bound(spec, only.substr(0, dots));
      const std::string most = only.substr(dots + 2);
      const bool is_auto = most == kAutoWord;
      spec.takes_auto = spec.type == ParamType::kInt && (is_auto || or_auto);
      if (!spec.takes_auto || !is_auto) spec.most = read_bound(spec, most);
      return;
    }
    for (const std::string& choice : spec.choices) {
      ParamSpec any = of_author(spec);
      any.choices.clear();
      coerce_param(any, Value(choice), "");
    }
  }

  static std::optional<double> read_bound(const ParamSpec& spec, const std::string& text) {
    if (text.empty()) return std::nullopt;
    ParamSpec any;
    any.name = spec.name;
    any.type = spec.type;
    any = of_author(any);
    const Value bound = coerce_param(any, Value(text), "");
    const bool is_number = bound.kind() == Kind::kInt || bound.kind() == Kind::kFloat;
    if (!is_number) fail("a range needs a number: " + in_quotes(spec.name));
    return bound.as_float();
  }

  Scanner in_;
};

}  // namespace

const char* param_type_name(ParamType type) noexcept {
  for (const TypeName& entry : kTypeNames) {
    if (entry.type == type) return entry.name;
  }
  return "unknown";
}

std::optional<ParamType> param_type_of(std::string_view name) noexcept {
  for (const TypeName& entry : kTypeNames) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

std::vector<ParamSpec> parse_param_specs(std::string_view text) {
  std::string why;
  try {
    check_text(text);
    return SpecReader(text).read_all();
  } catch (const SyntaxError& error) {
    why = error.what();
  } catch (const Error& error) {
    why = error.message();
  }
  throw Error(ErrorCode::kInternal, "declared parameters " + in_quotes(text, 200) + ": " + why);
}

std::vector<std::string> ParamSpec::spellings() const {
  std::vector<std::string> all{name};
  all.insert(all.end(), aliases.begin(), aliases.end());
  return all;
}

std::string show_param(const ParamSpec& spec) {
  std::string shown = spec.name + ": " + param_type_name(spec.type);
  const std::string& fallback = spec.fallback_text;
  if (!spec.required) shown += " = " + (fallback.empty() ? show_value(spec.type, spec.fallback) : fallback);
  if (!spec.choices.empty()) {
    shown += " {";
    for (std::size_t i = 0; i < spec.choices.size(); ++i) shown += (i > 0 ? "," : "") + spec.choices[i];
    shown += "}";
  }
  if (spec.least || spec.most || spec.takes_auto) {
    const auto bound = [&](const std::optional<double>& value) -> std::string {
      if (!value) return {};
      const bool whole = spec.type == ParamType::kInt || spec.type == ParamType::kByteSize;
      return show_value(spec.type, whole ? Value(static_cast<std::int64_t>(*value)) : Value(*value));
    };
    shown += " {" + bound(spec.least) + ".." +
             (!spec.takes_auto ? bound(spec.most)
              : spec.most      ? bound(spec.most) + "," + kAutoWord
                               : kAutoWord) +
             "}";
  }
  return shown;
}

// ---- Params: access to parameter values as C++ types.

namespace {

void require(bool fits, const char* type, const Value& value) {
  if (!fits) throw Error(ErrorCode::kInternal, std::string("holds ") + kind_name(value.kind()) + ", not " + type);
}

void read_into(const Value& value, bool& out) {
  require(value.kind() == Kind::kBool, "bool", value);
  out = value.as_bool();
}

void read_into(const Value& value, std::int64_t& out) {
  require(value.kind() == Kind::kInt, "int", value);
  out = value.as_int();
}

void read_into(const Value& value, double& out) {
  require(value.kind() == Kind::kFloat || value.kind() == Kind::kInt, "float", value);
  out = value.as_float();
}

void read_into(const Value& value, std::string& out) {
  require(value.kind() == Kind::kStr, "str", value);
  out = value.as_text();
}

void read_into(const Value& value, std::vector<std::string>& out) {
  require(value.kind() == Kind::kList, "list", value);
  const ListObject& list = value.as_list();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Value item = list.at(i);
    require(item.kind() == Kind::kStr || !item.is_counted(), "list of str", value);
    out.push_back(item.kind() == Kind::kStr ? std::string(item.as_text()) : show_value(item));
  }
}

template <class T>
void read_into(const Value& value, std::optional<T>& out) {
  if (!value.is_none()) read_into(value, out.emplace());
}

}  // namespace

void Params::set(const std::string& name, Value value) { values_[name] = std::move(value); }

const Value* Params::find(const std::string& name) const noexcept {
  const auto entry = values_.find(name);
  return entry == values_.end() ? nullptr : &entry->second;
}

template <class T>
T Params::get(const std::string& name) const {
  const Value* value = find(name);
  if (!value) throw Error(ErrorCode::kInternal, "no parameter \"" + name + "\" is declared");
  T out{};
  try {
    read_into(*value, out);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInternal, "parameter \"" + name + "\" " + error.message());
  }
  return out;
}

template bool Params::get(const std::string&) const;
template std::int64_t Params::get(const std::string&) const;
template double Params::get(const std::string&) const;
template std::string Params::get(const std::string&) const;
template std::vector<std::string> Params::get(const std::string&) const;
template std::optional<bool> Params::get(const std::string&) const;
template std::optional<std::int64_t> Params::get(const std::string&) const;
template std::optional<double> Params::get(const std::string&) const;
template std::optional<std::string> Params::get(const std::string&) const;
template std::optional<std::vector<std::string>> Params::get(const std::string&) const;

}  // namespace hami
