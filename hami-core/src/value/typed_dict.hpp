// A dict whose keys and kinds are declared: the C++ twin of Python's hami.TypedDict.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "value/dict.hpp"

namespace hami {

// What a TypedDict may hold. Make one for each declaration and keep it: dicts refer to it.
class DictType {
 public:
  struct Key {
    std::string name;
    std::optional<Kind> kind;  // none: anything. A float takes an int too.
    bool required = true;
  };

  DictType(std::string name, std::vector<Key> keys) : name_(std::move(name)), keys_(std::move(keys)) {}

  const std::string& name() const noexcept { return name_; }
  const Key* find(std::string_view key) const noexcept;
  // Throw Error(kDataType): for a key that is not declared, with near names, or a value of another kind;
  void check(std::string_view key, const Value& value) const;
  // also for a required key that is absent. `result` is never missing: a request gets it from its pipe.
  void check(const Dict& dict) const;

 private:
  std::string name_;
  std::vector<Key> keys_;
};

// Checked when it is made and on every write; a write that is refused changes nothing.
class TypedDict {
 public:
  explicit TypedDict(const DictType& type, Dict dict = {});

  void set(std::string_view key, Value value);
  bool erase(std::string_view key);  // Error(kDataType) for a required key that is there
  const Value* find(std::string_view key) const noexcept { return dict_.find(key); }
  const Value& at(std::string_view key) const;  // Error(kNotFound)
  bool contains(std::string_view key) const noexcept { return dict_.contains(key); }
  std::size_t size() const noexcept { return dict_.size(); }

  const DictType& type() const noexcept { return *type_; }
  const Dict& dict() const noexcept { return dict_; }
  Dict take() && { return std::move(dict_); }  // for a request

 private:
  const DictType* type_;
  Dict dict_;
};

}  // namespace hami
