// Dict: the keys of a request, and how much memory they need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "value/value.hpp"

namespace hami {

// Dict: the keys of one request. Few, in order, found by linear search, each marked if it was written after the request
// arrived.
inline constexpr std::string_view kData = "data";
inline constexpr std::string_view kResult = "result";
inline constexpr std::string_view kRequestSize = "request_size";
// The rows of a request in a concatenated tensor, which tensor backends set and remove; -1: one row without a batch axis. It never
// enters the caller's dict.
inline constexpr std::string_view kTensorRows = "tensor_rows";
inline constexpr std::string_view kPriority = "priority";
inline constexpr std::string_view kNodeName = "node_name";
inline constexpr std::string_view kEvent = "event";
inline constexpr std::string_view kParts = "parts";
inline constexpr std::string_view kVisits = "hami.visits";

// Not thread-safe: a request has one owner at a time.
class Dict {
 public:
  struct Entry {
    std::string key;
    Value value;
    bool written;
  };

  // Adds a key of the original request, not marked as written. The key must not exist yet.
  void enter(std::string key, Value value) { entries_.push_back({std::move(key), std::move(value), false}); }

  const Value* find(std::string_view key) const noexcept {
    for (const Entry& entry : entries_)
      if (entry.key == key) return &entry.value;
    return nullptr;
  }
  Value* find(std::string_view key) noexcept { return const_cast<Value*>(std::as_const(*this).find(key)); }
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }

  void set(std::string_view key, Value value) { exchange(key, std::move(value)); }
  bool erase(std::string_view key) { return take(key).has_value(); }

  // As `set` and `erase`, but return the old value: its destruction may run user code that reads or changes this dict.
  Value exchange(std::string_view key, Value value) {
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      entry.written = true;
      return std::exchange(entry.value, std::move(value));
    }
    entries_.push_back({std::string(key), std::move(value), true});
    return {};
  }
  std::optional<Value> take(std::string_view key) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found == entries_.end()) return std::nullopt;
    std::optional<Value> taken(std::move(found->value));
    entries_.erase(found);
    return taken;
  }

  void reserve(std::size_t size) { entries_.reserve(size); }
  std::size_t size() const noexcept { return entries_.size(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

// byte_size: how much memory the values of a request need.
// The bytes of its texts, bytes and tensors, also inside lists and dicts; other values count as 16. An object of another language
// that is not a tensor counts as that too, because its memory is unknown.
std::size_t byte_size(const Value& value);
std::size_t byte_size(const Dict& dict);

std::string show_bytes(std::size_t bytes);  // "640 B", "12.5 MiB"

}  // namespace hami
