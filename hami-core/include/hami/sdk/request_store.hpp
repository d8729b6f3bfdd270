// RequestStore: values by request and key, for any number of threads. Needs only the C++17 standard library.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace hami {

// The id of a request, or the key of one of its values: a text or an integer. 7 and "7" are different ids.
class StoreId {
 public:
  template <class Number, std::enable_if_t<std::is_integral_v<Number> && !std::is_same_v<Number, bool>, int> = 0>
  StoreId(Number number) noexcept : value_(static_cast<std::int64_t>(number)) {}
  StoreId(std::string text) noexcept : value_(std::move(text)) {}
  StoreId(std::string_view text) : value_(std::string(text)) {}
  StoreId(const char* text) : value_(std::string(text)) {}
  // Copies the text first: libstdc++ destroys a variant that was not constructed if its copy constructor throws.
  StoreId(const StoreId& other) : value_(other.number() ? Value(*other.number()) : Value(std::string(*other.text()))) {}
  StoreId(StoreId&&) noexcept = default;
  StoreId& operator=(const StoreId&) = default;
  StoreId& operator=(StoreId&&) noexcept = default;
  ~StoreId() = default;

  const std::int64_t* number() const noexcept { return std::get_if<std::int64_t>(&value_); }
  const std::string* text() const noexcept { return std::get_if<std::string>(&value_); }
  // For messages: 7 or "7".
  std::string show() const { return number() ? std::to_string(*number()) : '"' + *text() + '"'; }

  friend bool operator==(const StoreId& a, const StoreId& b) noexcept { return a.value_ == b.value_; }
  friend bool operator!=(const StoreId& a, const StoreId& b) noexcept { return !(a == b); }
  struct Hash {
    std::size_t operator()(const StoreId& id) const noexcept { return std::hash<decltype(id.value_)>()(id.value_); }
  };

 private:
  using Value = std::variant<std::int64_t, std::string>;
  Value value_;
};

// A map of two levels: req_id -> key -> value. All functions may be called from any thread.
//
// The outer map has a lock, and each request has one; no thread holds both. The inner map is never exposed. If a request is
// removed while other threads read it, these threads finish on its previous content.
// Values are copied while the lock of their request is held, so copying must be cheap and must not call the store: store a
// shared_ptr to large objects. Values are destroyed without a lock.
class RequestStore {
 public:
  using Id = StoreId;
  using Key = StoreId;

  struct NotFound : std::out_of_range {
    using std::out_of_range::out_of_range;
  };
  struct AlreadyExists : std::logic_error {
    using std::logic_error::logic_error;
  };

  RequestStore() = default;
  RequestStore(const RequestStore&) = delete;
  RequestStore& operator=(const RequestStore&) = delete;

  // Adds a request without values. AlreadyExists if the request exists.
  void create(const Id& req_id) {
    auto request = std::make_shared<Request>();
    const std::unique_lock lock(mutex_);
    if (!requests_.try_emplace(req_id, std::move(request)).second)
      throw AlreadyExists("request " + req_id.show() + " exists already");
  }

  // Adds a value. NotFound if the request does not exist; AlreadyExists, without effect, if it has the key.
  void insert(const Id& req_id, const Key& key, std::any value) {
    const std::shared_ptr<Request> request = existing(req_id);
    const std::unique_lock lock(request->mutex);
    if (!request->values.try_emplace(key, std::move(value)).second)
      throw AlreadyExists("request " + req_id.show() + " has a key " + key.show() + " already");
  }

  // Adds or replaces a value; returns true if it was added. NotFound if the request does not exist.
  bool insert_or_assign(const Id& req_id, const Key& key, std::any value) {
    const std::shared_ptr<Request> request = existing(req_id);
    const std::unique_lock lock(request->mutex);
    const auto [place, added] = request->values.try_emplace(key);
    place->second.swap(value);  // the old value is destroyed with `value`, after the lock
    return added;
  }

  // The value, or nothing if the request does not have the key. NotFound if the request does not exist.
  std::optional<std::any> get(const Id& req_id, const Key& key) const {
    const std::shared_ptr<Request> request = existing(req_id);
    const std::shared_lock lock(request->mutex);
    const auto found = request->values.find(key);
    return found == request->values.end() ? std::nullopt : std::optional<std::any>(found->second);
  }

  // The value. NotFound if the request or the key does not exist.
  std::any at(const Id& req_id, const Key& key) const {
    std::optional<std::any> found = get(req_id, key);
    if (!found) throw no_key(req_id, key);
    return std::move(*found);
  }

  // Like `at`, and erases the value. If several threads take one value, one of them gets it and the others throw NotFound.
  std::any take(const Id& req_id, const Key& key) {
    const std::shared_ptr<Request> request = existing(req_id);
    const std::unique_lock lock(request->mutex);
    const auto found = request->values.find(key);
    if (found == request->values.end()) throw no_key(req_id, key);
    std::any value = std::move(found->second);
    request->values.erase(found);
    return value;
  }

  bool contains(const Id& req_id) const { return find(req_id) != nullptr; }
  bool contains(const Id& req_id, const Key& key) const {
    const std::shared_ptr<Request> request = find(req_id);
    if (!request) return false;
    const std::shared_lock lock(request->mutex);
    return request->values.count(key) != 0;
  }

  // Erases a value; returns false if the key does not exist. NotFound if the request does not exist.
  bool erase(const Id& req_id, const Key& key) {
    const std::shared_ptr<Request> request = existing(req_id);
    std::any value;  // destroyed after the lock is released
    const std::unique_lock lock(request->mutex);
    const auto found = request->values.find(key);
    if (found == request->values.end()) return false;
    value.swap(found->second);
    request->values.erase(found);
    return true;
  }

  // Removes a request with all its values; returns false if it does not exist.
  bool remove(const Id& req_id) {
    std::shared_ptr<Request> request;  // destroyed after the lock is released, by the last thread that reads it
    const std::unique_lock lock(mutex_);
    const auto found = requests_.find(req_id);
    if (found == requests_.end()) return false;
    request = std::move(found->second);
    requests_.erase(found);
    return true;
  }

  // The number of requests, or of the values of one request. NotFound if the request does not exist.
  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return requests_.size();
  }
  std::size_t size(const Id& req_id) const {
    const std::shared_ptr<Request> request = existing(req_id);
    const std::shared_lock lock(request->mutex);
    return request->values.size();
  }

  // The keys of a request, in no particular order. NotFound if the request does not exist.
  std::vector<Key> keys(const Id& req_id) const {
    const std::shared_ptr<Request> request = existing(req_id);
    std::vector<Key> names;
    const std::shared_lock lock(request->mutex);
    names.reserve(request->values.size());
    for (const auto& [key, value] : request->values) names.push_back(key);
    return names;
  }

  // Calls `visit(const Key&, const std::any&)` for each value of a snapshot. No lock is held: `visit` may use the store, and does
  // not see later changes. NotFound if the request does not exist.
  template <class Visit>
  void for_each(const Id& req_id, Visit&& visit) const {
    for (const auto& [key, value] : snapshot(req_id)) visit(key, value);
  }

  // Removes all requests.
  void clear() {
    Requests all;  // destroyed after the lock is released
    const std::unique_lock lock(mutex_);
    all.swap(requests_);
  }

 private:
  struct Request {
    mutable std::shared_mutex mutex;  // guards values
    std::unordered_map<Key, std::any, Key::Hash> values;
  };
  using Requests = std::unordered_map<Id, std::shared_ptr<Request>, Id::Hash>;

  std::shared_ptr<Request> find(const Id& req_id) const {
    const std::shared_lock lock(mutex_);
    const auto found = requests_.find(req_id);
    return found == requests_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Request> existing(const Id& req_id) const {
    std::shared_ptr<Request> request = find(req_id);
    if (!request) throw NotFound("the store has no request " + req_id.show());
    return request;
  }

  std::vector<std::pair<Key, std::any>> snapshot(const Id& req_id) const {
    const std::shared_ptr<Request> request = existing(req_id);
    const std::shared_lock lock(request->mutex);
    return {request->values.begin(), request->values.end()};
  }

  static NotFound no_key(const Id& req_id, const Key& key) {
    return NotFound("request " + req_id.show() + " has no key " + key.show());
  }

  mutable std::shared_mutex mutex_;  // guards requests_
  Requests requests_;
};

using KVStorage = RequestStore;

}  // namespace hami
