// Runs backends that were written for torchpipe v0, with init, forward, max and min on dicts of values, as backends of HAMi.
//
//   class Twice : public ipipe::SingleBackend {
//     void forward(ipipe::dict item) override {
//       (*item)[ipipe::TASK_RESULT_KEY] = 2 * ipipe::any_cast<int>(item->at(ipipe::TASK_DATA_KEY));
//     }
//   };
//   IPIPE_PORT(Twice, "Twice", "", "Doubles an int.");
//   HAMI_PLUGIN("acme-twice", "1.0.0")
//
// A value of a request is a std::any: bool, int (std::int64_t if it is larger), float, std::string for str and bytes,
// std::vector<any> for lists, std::unordered_map<std::string, any> for dicts, hami::Tensor for tensors and arrays, and hami::Value
// for everything else. Keys that `forward` leaves alone keep their values; a std::string that it sets arrives as bytes.
#pragma once

#include <hami/backend.hpp>

#include <any>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ipipe {

using any = std::any;
using std::any_cast;
using dict = std::shared_ptr<std::unordered_map<std::string, any>>;
using config = std::unordered_map<std::string, std::string>;

inline constexpr auto TASK_DATA_KEY = "data";
inline constexpr auto TASK_RESULT_KEY = "result";
inline constexpr auto TASK_BOX_KEY = "_box";
inline constexpr auto TASK_CONTEXT_KEY = "context";
inline constexpr auto TASK_REQUEST_SIZE_KEY = "request_size";

// The base class of torchpipe v0. `init` gets the declared parameters as texts, and dict_config, which the backends of one
// instance share, is empty.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual bool init(const config&, dict) { return true; }
  virtual void forward(const std::vector<dict>& items) = 0;
  virtual std::uint32_t max() const { return 1; }
  virtual std::uint32_t min() const { return 1; }
};

// A backend that takes one request at a time.
class SingleBackend : public Backend {
 public:
  void forward(const std::vector<dict>& items) override {
    for (const dict& item : items) forward(item);
  }
  virtual void forward(dict item) = 0;
};

namespace port {

// The parameters of a class, as IPIPE_PORT declares them.
template <class Theirs>
inline constexpr const char* kParams = "";

// The names in "resize_h: int; color|order: str = 'rgb'".
inline std::vector<std::string> names_of(std::string_view declared) {
  std::vector<std::string> names;
  char quote = 0;
  bool is_name = true;
  std::string name;
  for (const char letter : declared) {
    if (quote) {
      if (letter == quote) quote = 0;
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
    } else if (letter == ';') {
      is_name = true;
    } else if (is_name && (letter == ':' || letter == '|')) {
      names.push_back(std::exchange(name, {}));
      is_name = false;
    } else if (is_name && letter != ' ') {
      name += letter;
    }
  }
  return names;
}

inline any to_any(const hami::Value& value) {
  switch (value.kind()) {
    case HAMI_BOOL: return value.as_bool();
    case HAMI_INT: {
      const std::int64_t number = value.as_int();
      if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) return number;
      return static_cast<int>(number);
    }
    case HAMI_FLOAT: return static_cast<float>(value.as_float());
    case HAMI_STR:
    case HAMI_BYTES: return std::string(value.as_text());
    case HAMI_LIST: {
      std::vector<any> items;
      for (const hami::Value& item : value.as_list()) items.push_back(to_any(item));
      return items;
    }
    case HAMI_DICT: {
      std::unordered_map<std::string, any> entries;
      for (const auto& [key, item] : value.as_dict()) entries.emplace(key, to_any(item));
      return entries;
    }
    case HAMI_NONE: return value;
    default: break;
  }
  try {
    return value.as_tensor();
  } catch (const hami::Error&) {
    return value;
  }
}

template <class Number>
bool set_number(const any& given, hami::Value& value) {
  const auto* number = std::any_cast<Number>(&given);
  if (number) value = hami::Value(*number);
  return number != nullptr;
}

template <class Item>
bool set_list(const any& given, hami::Value& value) {
  const auto* items = std::any_cast<std::vector<Item>>(&given);
  if (!items) return false;
  std::vector<hami::Value> values;
  for (const Item item : *items) values.emplace_back(item);
  value = hami::Value::list(values);
  return true;
}

inline hami::Value to_value(const any& given, const std::string& key) {
  hami::Value value;
  if (!given.has_value()) return value;
  if (const auto* same = std::any_cast<hami::Value>(&given)) return *same;
  if (const auto* tensor = std::any_cast<hami::Tensor>(&given)) return *tensor;
  if (const auto* text = std::any_cast<std::string>(&given)) return hami::Value::bytes(*text);
  if (const auto* text = std::any_cast<const char*>(&given)) return hami::Value(*text);
  if (set_number<bool>(given, value) || set_number<int>(given, value) || set_number<unsigned>(given, value) ||
      set_number<long>(given, value) || set_number<long long>(given, value) ||
      set_number<unsigned long>(given, value) || set_number<float>(given, value) || set_number<double>(given, value) ||
      set_list<int>(given, value) || set_list<long>(given, value) || set_list<float>(given, value) ||
      set_list<double>(given, value))
    return value;
  if (const auto* items = std::any_cast<std::vector<any>>(&given)) {
    std::vector<hami::Value> values;
    for (const any& item : *items) values.push_back(to_value(item, key));
    return hami::Value::list(values);
  }
  if (const auto* entries = std::any_cast<std::unordered_map<std::string, any>>(&given)) {
    std::vector<std::pair<std::string, hami::Value>> values;
    for (const auto& [name, item] : *entries) values.emplace_back(name, to_value(item, key));
    return hami::Value::dict(values);
  }
  throw hami::Error(HAMI_DATA_TYPE, "the value under \"" + key + "\" has the C++ type " + given.type().name() +
                                        ", which no other backend can read; set a number, a std::string, a "
                                        "hami::Tensor, a std::vector or a std::unordered_map of them");
}

// Whether `forward` left a value alone. Containers may have changed inside.
inline bool is_same(const any& before, const any& after) {
  if (before.type() != after.type()) return false;
  const auto equal = [&](auto sample) {
    const auto* first = std::any_cast<decltype(sample)>(&before);
    return first && *first == *std::any_cast<decltype(sample)>(&after);
  };
  if (const auto* first = std::any_cast<hami::Tensor>(&before))
    return first->view().data == std::any_cast<hami::Tensor>(&after)->view().data;
  return before.type() == typeid(hami::Value) || equal(bool()) || equal(int()) || equal(std::int64_t()) ||
         equal(float()) || equal(std::string());
}

inline std::string text_of(const hami::Value& value) {
  switch (value.kind()) {
    case HAMI_BOOL: return value.as_bool() ? "1" : "0";
    case HAMI_INT: return std::to_string(value.as_int());
    case HAMI_FLOAT: return std::to_string(value.as_float());
    case HAMI_LIST: {
      std::string text;
      for (const hami::Value& item : value.as_list()) text += (text.empty() ? "" : ",") + text_of(item);
      return text;
    }
    default: return std::string(value.as_text());
  }
}

template <class Theirs>
class Ported final : public hami::Backend {
  using Values = std::unordered_map<std::string, any>;

  void init_(const hami::Params& params) override {
    config keys;
    for (const std::string& name : names_of(kParams<Theirs>))
      if (const hami::Value value = params.value(name); !value.is_none()) keys.emplace(name, text_of(value));
    if (!theirs().init(keys, std::make_shared<Values>()))
      throw hami::Error(HAMI_FAILED_PRECONDITION, std::string(label()) + ": init returned false");
  }

  hami::Range range_() const override {
    const std::uint32_t max = theirs().max();
    return {theirs().min(), max == std::numeric_limits<std::uint32_t>::max() ? 0 : max};
  }

  void forward_(hami::Batch batch) override {
    std::vector<dict> items;
    std::vector<Values> before;
    for (const hami::Dict& item : batch) {
      Values values;
      for (const std::string& key : item.keys()) values.emplace(key, to_any(item.get(key)));
      before.push_back(values);
      items.push_back(std::make_shared<Values>(std::move(values)));
    }
    theirs().forward(items);
    std::size_t at = 0;
    for (const hami::Dict& item : batch) {
      for (const auto& [key, value] : before[at])
        if (!items[at]->count(key)) item.erase(key);
      for (const auto& [key, value] : *items[at])
        if (const auto found = before[at].find(key); found == before[at].end() || !is_same(found->second, value))
          item[key] = to_value(value, key);
      ++at;
    }
  }

  ipipe::Backend& theirs() const { return const_cast<Theirs&>(theirs_); }

  Theirs theirs_;
};

}  // namespace port
}  // namespace ipipe

// Registers a class of torchpipe: its name in expressions, the parameters that its `init` reads, and one sentence about it.
#define IPIPE_PORT(Class, name, params, doc)                         \
  template <>                                                        \
  inline constexpr const char* ipipe::port::kParams<Class> = params; \
  HAMI_REGISTER(ipipe::port::Ported<Class>, name, params, doc)
