// TypedDict: a dict with declared keys and kinds, as TypedDict of hami-torchpipe is in Python.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "value/dict.hpp"

namespace hami {

// The declaration of a TypedDict. It must outlive the dicts that refer to it.
class DictType {
 public:
  struct Key {
    std::string name;
    std::optional<Kind> kind;  // none: any kind. A float also accepts an int.
    bool required = true;
  };

  DictType(std::string name, std::vector<Key> keys) : name_(std::move(name)), keys_(std::move(keys)) {}

  const std::string& name() const noexcept { return name_; }
  const Key* find(std::string_view key) const noexcept;
  // Both throw Error(kDataType): for an undeclared key (with near names) or a value of another kind;
  void check(std::string_view key, const Value& value) const;
  // and for a missing required key. `result` is never required: the pipe sets it.
  void check(const Dict& dict) const;

 private:
  std::string name_;
  std::vector<Key> keys_;
};

// Checked on construction and on every write. A refused write changes nothing.
class TypedDict {
 public:
  explicit TypedDict(const DictType& type, Dict dict = {});

  void set(std::string_view key, Value value);
  bool erase(std::string_view key);  // Error(kDataType) for a required key
  const Value* find(std::string_view key) const noexcept { return dict_.find(key); }
  const Value& at(std::string_view key) const;  // Error(kNotFound)
  bool contains(std::string_view key) const noexcept { return dict_.contains(key); }
  std::size_t size() const noexcept { return dict_.size(); }

  const DictType& type() const noexcept { return *type_; }
  const Dict& dict() const noexcept { return dict_; }
  Dict take() && { return std::move(dict_); }  // to make a request of it

 private:
  const DictType* type_;
  Dict dict_;
};

}  // namespace hami
