// Dict: the keys of one request. Batch: the requests of one call. Params: the parameters of a backend.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hami/sdk/tensor.hpp"

namespace hami {
inline namespace sdk {

// The keys of one request, or options() of a backend. Valid during the call that passed it.
class Dict {
 public:
  explicit Dict(hami_dict* dict) noexcept : dict_(dict) {}

  // One key, for reading or setting. Refers to the text of the key: do not keep it.
  class Entry {
   public:
    Entry(hami_dict* dict, std::string_view key) noexcept : dict_(dict), key_(key) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Value& value) {
      check(host().dict_set(dict_, key_.data(), key_.size(), &value.raw()));
      return *this;
    }
    Entry& operator=(const Entry& other) { return *this = other.value(); }
    Value value() const { return Dict(dict_).get(key_); }
    operator Value() const { return value(); }
    bool as_bool() const { return value().as_bool(); }
    std::int64_t as_int() const { return value().as_int(); }
    double as_float() const { return value().as_float(); }
    std::string as_text() const { return std::string(value().as_text()); }
    Tensor as_tensor() const { return value().as_tensor(); }

   private:
    hami_dict* dict_;
    std::string_view key_;
  };

  Entry operator[](std::string_view key) const noexcept { return {dict_, key}; }
  std::optional<Value> find(std::string_view key) const {
    hami_value raw;
    if (!host().dict_get(dict_, key.data(), key.size(), &raw)) return std::nullopt;
    return Value::adopt(raw);
  }
  // Error(HAMI_REQUEST) if the key does not exist.
  Value get(std::string_view key) const {
    if (std::optional<Value> found = find(key)) return *std::move(found);
    throw Error(HAMI_REQUEST, "the request has no `" + std::string(key) + "`");
  }
  // Like find, and erases the key.
  std::optional<Value> take(std::string_view key) const noexcept {
    hami_value raw;
    if (!host().dict_take(dict_, key.data(), key.size(), &raw)) return std::nullopt;
    return Value::adopt(raw);
  }
  bool contains(std::string_view key) const { return find(key).has_value(); }
  bool erase(std::string_view key) const noexcept { return host().dict_erase(dict_, key.data(), key.size()) != 0; }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    hami_text key;
    for (hami_value raw; host().dict_at(dict_, names.size(), &key, &raw) != 0;) {
      const Value held = Value::adopt(raw);
      names.emplace_back(view(key));
    }
    return names;
  }

  // Fails this request only; the other requests of its batch continue. The first error counts.
  void fail(const Error& error) const noexcept { host().item_fail(dict_, error.copy()); }
  std::optional<Error> error() const {
    if (hami_error* error = host().item_error(dict_)) return Error(error);
    return std::nullopt;
  }
  std::uint64_t request_size() const noexcept { return host().item_size(dict_); }
  bool is_cancelled() const noexcept { return host().item_cancelled(dict_) != 0; }
  std::int32_t priority() const noexcept { return host().item_priority(dict_); }
  // In nanoseconds of host().clock_now; INT64_MAX: no deadline.
  std::int64_t deadline() const noexcept { return host().item_deadline(dict_); }

#if HAMI_ABI_USE_MINOR >= 1
  // Delivers a part of the result to the caller, and blocks while the caller is behind. False: the caller takes no parts, and this
  // one was dropped. Throws Error if the caller has left or the deadline passes. Since 1.1.
  bool emit(const Value& part) const {
    std::int32_t heard = 0;
    check(host().item_emit(dict_, &part.raw(), &heard));
    return heard != 0;
  }
#else
  template <class Part>
  bool emit(const Part&) const {
    static_assert(sizeof(Part) == 0, "emit needs plugin ABI 1.1: #define HAMI_ABI_TARGET 1 before the include");
    return false;
  }
#endif

  hami_dict* raw() const noexcept { return dict_; }

 private:
  hami_dict* dict_;
};

// A request without keys that a container creates for its child, on behalf of one of the container's requests.
class OwnItem {
 public:
  explicit OwnItem(const Dict& of) { check(host().item_new(of.raw(), &item_)); }
  OwnItem(OwnItem&& other) noexcept : item_(std::exchange(other.item_, nullptr)) {}
  OwnItem& operator=(OwnItem other) noexcept {
    std::swap(item_, other.item_);
    return *this;
  }
  ~OwnItem() {
    if (item_) host().item_free(item_);
  }
  Dict dict() const noexcept { return Dict(item_); }

 private:
  hami_dict* item_ = nullptr;
};

// The requests of one call, borrowed. Copying it copies two words.
class Batch {
 public:
  Batch(hami_dict* const* items, std::size_t size) noexcept : items_(items), size_(size) {}

  class Iterator {
   public:
    explicit Iterator(hami_dict* const* at) noexcept : at_(at), dict_(nullptr) {}
    Dict& operator*() noexcept { return dict_ = Dict(*at_); }
    Iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const noexcept { return at_ != other.at_; }

   private:
    hami_dict* const* at_;
    Dict dict_;
  };

  Iterator begin() const noexcept { return Iterator(items_); }
  Iterator end() const noexcept { return Iterator(items_ + size_); }
  std::size_t size() const noexcept { return size_; }
  Dict operator[](std::size_t index) const noexcept { return Dict(items_[index]); }
  hami_dict* const* raw() const noexcept { return items_; }

 private:
  hami_dict* const* items_;
  std::size_t size_;
};

// The declared parameters; those that are not configured have their defaults.
class Params {
 public:
  explicit Params(const hami_dict* dict) noexcept : dict_(const_cast<hami_dict*>(dict)) {}

  Value value(std::string_view name) const { return dict_.get(name); }

  // T: bool, an integer (Error if the value does not fit), a floating-point number (durations in milliseconds),
  // std::string, std::vector<std::string>, or std::optional of these for parameters that may be None.
  template <class T>
  T get(std::string_view name) const {
    const Value found = value(name);
    if constexpr (is_optional<T>::value) {
      return found.is_none() ? T() : T(get<typename T::value_type>(name));
    } else if constexpr (std::is_same_v<T, bool>) {
      return found.as_bool();
    } else if constexpr (std::is_integral_v<T>) {
      const std::int64_t given = found.as_int();
      const auto number = static_cast<T>(given);
      if (static_cast<std::int64_t>(number) != given || (std::is_unsigned_v<T> && given < 0))
        throw Error(HAMI_FAILED_PRECONDITION, "parameter `" + std::string(name) + "` must be from " +
                                                  std::to_string(std::numeric_limits<T>::min()) + " to " +
                                                  std::to_string(std::numeric_limits<T>::max()) + ", got " +
                                                  std::to_string(given));
      return number;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(found.as_float());
    } else if constexpr (std::is_same_v<T, std::string>) {
      return std::string(found.as_text());
    } else {
      static_assert(std::is_same_v<T, std::vector<std::string>>,
                    "get<T> supports bool, numbers, std::string, std::vector<std::string> and std::optional of these");
      std::vector<std::string> items;
      for (const Value& item : found.as_list()) items.emplace_back(item.as_text());
      return items;
    }
  }

 private:
  template <class T>
  struct is_optional : std::false_type {};
  template <class T>
  struct is_optional<std::optional<T>> : std::true_type {};

  Dict dict_;
};

}  // namespace sdk
}  // namespace hami
