// Dicts: checks against a declared type, and the memory of values.
#include "value/dict.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/api.hpp"
#include "value/error.hpp"
#include "value/tensor.hpp"

namespace hami {

// ---- DictType and TypedDict: checks, with the same messages as the Python counterpart.

namespace {

// Reserved keys: every request may have them, declared or not.
constexpr std::string_view kRequestKeys[] = {kData,     kResult,   kNodeName, kEvent,    kRequestSize,
                                             "req_id",  "context", "state",   kPriority, "deadline",
                                             "timeout", kParts,    kVisits};

bool is_request_key(std::string_view key) noexcept {
  return std::find(std::begin(kRequestKeys), std::end(kRequestKeys), key) != std::end(kRequestKeys);
}

bool takes(const DictType::Key& declared, Kind kind) noexcept {
  return !declared.kind || *declared.kind == kind || (*declared.kind == Kind::kFloat && kind == Kind::kInt);
}

std::string quote(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string shown_kind(const DictType::Key& key) { return key.kind ? kind_name(*key.kind) : "Any"; }

[[noreturn]] void refuse_value(const std::string& text) { throw Error(ErrorCode::kDataType, text); }

}  // namespace

const DictType::Key* DictType::find(std::string_view key) const noexcept {
  for (const Key& declared : keys_)
    if (declared.name == key) return &declared;
  return nullptr;
}

void DictType::check(std::string_view key, const Value& value) const {
  if (const Key* declared = find(key)) {
    if (!takes(*declared, value.kind()))
      refuse_value("key " + quote(key) + " takes " + shown_kind(*declared) + ", got " + type_name(value));
    return;
  }
  if (is_request_key(key)) return;
  std::vector<std::string> names;
  std::string known;
  for (const Key& declared : keys_) {
    names.push_back(declared.name);
    known += (known.empty() ? "" : ", ") + declared.name;
  }
  refuse_value(name_ + " has no key " + quote(key) + did_you_mean(near_names(key, names), true) +
               "  (its keys: " + (known.empty() ? "none" : known) + ")");
}

void DictType::check(const Dict& dict) const {
  std::string missing;
  std::size_t count = 0;
  for (const Key& declared : keys_) {
    if (!declared.required || declared.name == kResult || dict.contains(declared.name)) continue;
    missing += (count++ ? ", " : " ") + quote(declared.name) + " (" + shown_kind(declared) + ")";
  }
  if (count > 0) refuse_value(name_ + " lacks the key" + (count > 1 ? "s" : "") + missing);
  for (const Dict::Entry& entry : dict) check(entry.key, entry.value);
}

TypedDict::TypedDict(const DictType& type, Dict dict) : type_(&type), dict_(std::move(dict)) { type.check(dict_); }

void TypedDict::set(std::string_view key, Value value) {
  type_->check(key, value);
  dict_.set(key, std::move(value));
}

bool TypedDict::erase(std::string_view key) {
  const DictType::Key* declared = type_->find(key);
  if (declared && declared->required && key != kResult && dict_.contains(key))
    refuse_value("key " + quote(key) + " of " + type_->name() + " is required; it cannot be removed");
  return dict_.erase(key);
}

const Value& TypedDict::at(std::string_view key) const {
  if (const Value* value = dict_.find(key)) return *value;
  throw Error(ErrorCode::kNotFound, type_->name() + " has no key " + quote(key));
}

// ---- byte_size: sums over the values that own memory.

namespace {

// On any device: only the shape is read.
std::size_t tensor_bytes(const Value& value) {
  return value.kind() == Kind::kTensor ? static_cast<const TensorObject*>(value.object())->bytes() : 0;
}

std::size_t owned_bytes(const Value& value) {
  std::size_t sum = 0;
  switch (value.kind()) {
    case Kind::kStr:
    case Kind::kBytes: return value.as_text().size();
    case Kind::kTensor: return tensor_bytes(value);
    case Kind::kOpaque: try { return tensor_bytes(static_cast<const OpaqueObject*>(value.object())->to_tensor());
      } catch (const Error&) {  // its memory cannot be read here
        return 0;
      }
    case Kind::kList:
      for (std::size_t i = 0; i < value.as_list().size(); ++i) sum += byte_size(value.as_list().at(i));
      return sum;
    case Kind::kDict:
      for (const auto& [key, inner] : value.as_dict().entries()) sum += key.size() + byte_size(inner);
      return sum;
    default: return 0;
  }
}

}  // namespace

std::size_t byte_size(const Value& value) { return sizeof(Value) + owned_bytes(value); }

std::size_t byte_size(const Dict& dict) {
  std::size_t sum = 0;
  for (const Dict::Entry& entry : dict) sum += entry.key.size() + byte_size(entry.value);
  return sum;
}

std::string show_bytes(std::size_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double shown = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; shown >= 1024 && unit + 1 < kUnits.size(); ++unit) shown /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", shown, kUnits[unit]);
  return text.data();
}

}  // namespace hami
