// Params: access to parameter values as C++ types.
#include "lang/params.hpp"

#include "lang/units.hpp"
#include "value/error.hpp"

namespace hami {
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
