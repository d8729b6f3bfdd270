// Value: the value of a key of a request.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hami/sdk/host.hpp"

namespace hami {
inline namespace sdk {

class Tensor;

// Cheap to copy: copies share large values.
class Value {
  template <class Number>
  static constexpr bool may_be_too_large = std::is_unsigned_v<Number> && sizeof(Number) >= sizeof(std::int64_t);

 public:
  Value() noexcept : raw_{} {}
  Value(std::nullptr_t) noexcept : Value() {}
  // Error(HAMI_INVALID_ARGUMENT) for an unsigned number that an int of 64 bits cannot hold.
  template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  Value(Number number) noexcept(!may_be_too_large<Number>) : raw_{} {
    if constexpr (may_be_too_large<Number>)
      if (number > static_cast<Number>(std::numeric_limits<std::int64_t>::max()))
        throw Error(HAMI_INVALID_ARGUMENT, "an int is at most 9223372036854775807, got " + std::to_string(number));
    if constexpr (std::is_floating_point_v<Number>) {
      raw_.kind = HAMI_FLOAT;
      raw_.as.f = static_cast<double>(number);
    } else {
      raw_.kind = std::is_same_v<Number, bool> ? HAMI_BOOL : HAMI_INT;
      raw_.as.i = static_cast<std::int64_t>(number);
    }
  }
  Value(std::string_view text) : raw_{} { check(host().str_new(text.data(), text.size(), &raw_)); }
  Value(const std::string& text) : Value(std::string_view(text)) {}
  Value(const char* text) : Value(std::string_view(text)) {}

  static Value bytes(std::string_view bytes) {
    Value value;
    check(host().bytes_new(bytes.data(), bytes.size(), &value.raw_));
    return value;
  }
  static Value list(const std::vector<Value>& items) {
    static_assert(sizeof(Value) == sizeof(hami_value));
    std::vector<hami_value> raw;
    for (const Value& item : items) raw.push_back(item.raw_);
    Value value;
    check(host().list_new(raw.data(), raw.size(), &value.raw_));
    return value;
  }
  static Value dict(const std::vector<std::pair<std::string, Value>>& entries) {
    std::vector<hami_text> keys;
    std::vector<hami_value> values;
    for (const auto& [key, item] : entries) {
      keys.push_back({key.data(), key.size()});
      values.push_back(item.raw_);
    }
    Value value;
    check(host().map_new(keys.data(), values.data(), keys.size(), &value.raw_));
    return value;
  }
  // An object that only plugins which know `type_key` can interpret. It is deleted with the last copy of the value, on any thread.
  template <class T>
  static Value opaque(const char* type_key, std::unique_ptr<T> object) {
    Value value;
    const auto release = [](void* pointer) { host().error_free(guard([&] { delete static_cast<T*>(pointer); })); };
    check(host().opaque_new(type_key, object.release(), release, &value.raw_));
    return value;
  }

  // Takes ownership of the reference.
  static Value adopt(hami_value raw) noexcept {
    Value value;
    value.raw_ = raw;
    return value;
  }

  // Adds a reference; the caller keeps its own.
  static Value share(const hami_value& raw) noexcept {
    Value value = adopt(raw);
    if (value.is_counted()) host().object_retain(raw.as.o);
    return value;
  }

  Value(const Value& other) noexcept : raw_(other.raw_) {
    if (is_counted()) host().object_retain(raw_.as.o);
  }
  Value(Value&& other) noexcept : raw_(std::exchange(other.raw_, hami_value{})) {}
  Value& operator=(Value other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Value() {
    if (is_counted()) host().object_release(raw_.as.o);
  }

  std::int32_t kind() const noexcept { return raw_.kind; }
  bool is_none() const noexcept { return raw_.kind == HAMI_NONE; }
  const hami_value& raw() const noexcept { return raw_; }
  hami_value& raw() noexcept { return raw_; }  // for functions that store a value; this value must be None

  // Each throws Error(HAMI_DATA_TYPE) if the value is of another kind.
  bool as_bool() const { return expect(HAMI_BOOL, "bool").as.i != 0; }
  std::int64_t as_int() const { return expect(HAMI_INT, "int").as.i; }
  double as_float() const {
    return raw_.kind == HAMI_INT ? static_cast<double>(raw_.as.i) : expect(HAMI_FLOAT, "float").as.f;
  }
  std::string_view as_text() const {  // str or bytes; valid while this value exists
    hami_text text;
    check(host().text_view(&raw_, &text));
    return view(text);
  }
  std::vector<Value> as_list() const {
    std::size_t size = 0;
    check(host().list_size(&raw_, &size));
    std::vector<Value> items(size);
    for (std::size_t i = 0; i < size; ++i) check(host().list_at(&raw_, i, &items[i].raw_));
    return items;
  }
  std::vector<std::pair<std::string, Value>> as_dict() const {
    std::size_t size = 0;
    check(host().map_size(&raw_, &size));
    std::vector<std::pair<std::string, Value>> entries(size);
    for (std::size_t i = 0; i < size; ++i) {
      hami_text key;
      check(host().map_at(&raw_, i, &key, &entries[i].second.raw_));
      entries[i].first = view(key);
    }
    return entries;
  }
  Tensor as_tensor() const;  // also of an object of another language that exports its memory as a tensor
  // The object of an opaque value; valid while this value exists.
  template <class T>
  T& as_opaque(std::string_view type_key) const {
    hami_text key;
    void* pointer = nullptr;
    check(host().opaque_view(&raw_, &key, &pointer));
    if (view(key) != type_key)
      throw Error(HAMI_DATA_TYPE, "expected " + std::string(type_key) + ", got " + std::string(view(key)));
    return *static_cast<T*>(pointer);
  }

 private:
  bool is_counted() const noexcept { return raw_.kind >= HAMI_STR; }
  const hami_value& expect(std::int32_t kind, const char* name) const {
    if (raw_.kind != kind)
      throw Error(HAMI_DATA_TYPE, std::string("expected ") + name + ", got " + kind_name(raw_.kind));
    return raw_;
  }
  static const char* kind_name(std::int32_t kind) noexcept {
    switch (kind) {
      case HAMI_NONE: return "None";
      case HAMI_BOOL: return "bool";
      case HAMI_INT: return "int";
      case HAMI_FLOAT: return "float";
      case HAMI_STR: return "str";
      case HAMI_BYTES: return "bytes";
      case HAMI_LIST: return "list";
      case HAMI_DICT: return "dict";
      case HAMI_TENSOR: return "tensor";
      default: return "object";
    }
  }

  hami_value raw_;
};

}  // namespace sdk
}  // namespace hami
