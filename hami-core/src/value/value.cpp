// Value: the core's own counted objects, and checked access.
#include "value/value.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "value/error.hpp"
#include "value/tensor.hpp"

namespace hami {
namespace {

class OwnedText final : public TextObject {
 public:
  OwnedText(Kind kind, std::string text) : TextObject(kind), text_(std::move(text)) {}
  std::string_view view() const noexcept override { return text_; }

 private:
  std::string text_;
};

std::size_t nesting_of(const Value& value) noexcept { return value.is_counted() ? value.object()->nesting() : 0; }

class OwnedList final : public ListObject {
 public:
  explicit OwnedList(std::vector<Value> items) : items_(std::move(items)) {
    for (const Value& item : items_) nesting_ = std::max(nesting_, nesting_of(item) + 1);
    check_nesting(nesting_);
  }
  std::size_t nesting() const noexcept override { return nesting_; }
  std::size_t size() const override { return items_.size(); }
  Value at(std::size_t index) const override { return items_.at(index); }

 private:
  std::vector<Value> items_;
  std::size_t nesting_ = 1;
};

class OwnedMap final : public MapObject {
 public:
  explicit OwnedMap(std::vector<std::pair<std::string, Value>> entries) : entries_(std::move(entries)) {
    for (const auto& [key, value] : entries_) nesting_ = std::max(nesting_, nesting_of(value) + 1);
    check_nesting(nesting_);
  }
  std::size_t nesting() const noexcept override { return nesting_; }
  const std::vector<std::pair<std::string, Value>>& entries() const override { return entries_; }

 private:
  std::vector<std::pair<std::string, Value>> entries_;
  std::size_t nesting_ = 1;
};

[[noreturn]] void wrong_kind(const char* expected, Kind got) {
  throw Error(ErrorCode::kDataType, std::string("expected ") + expected + ", got " + kind_name(got));
}

}  // namespace

const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kStr: return "str";
    case Kind::kBytes: return "bytes";
    case Kind::kList: return "list";
    case Kind::kDict: return "dict";
    case Kind::kTensor: return "tensor";
    case Kind::kEvent: return "Event";
    case Kind::kBackend: return "Backend";
    case Kind::kOpaque: return "object";
  }
  return "unknown";
}

Value::Value(std::string text) : kind_(Kind::kStr), object_(new OwnedText(Kind::kStr, std::move(text))) {}

bool Value::as_bool() const {
  if (kind_ != Kind::kBool) wrong_kind("bool", kind_);
  return int_ != 0;
}

std::int64_t Value::as_int() const {
  if (kind_ != Kind::kInt) wrong_kind("int", kind_);
  return int_;
}

double Value::as_float() const {
  if (kind_ == Kind::kInt) return static_cast<double>(int_);
  if (kind_ != Kind::kFloat) wrong_kind("float", kind_);
  return float_;
}

std::string_view Value::as_text() const {
  if (kind_ != Kind::kStr && kind_ != Kind::kBytes) wrong_kind("str or bytes", kind_);
  return static_cast<const TextObject*>(object_)->view();
}

const ListObject& Value::as_list() const {
  if (kind_ != Kind::kList) wrong_kind("list", kind_);
  return *static_cast<const ListObject*>(object_);
}

const MapObject& Value::as_dict() const {
  if (kind_ != Kind::kDict) wrong_kind("dict", kind_);
  return *static_cast<const MapObject*>(object_);
}

namespace {

// Of a value that is a tensor, or of the tensor that `converted`, an opaque object's own, holds.
Tensor tensor_in(const Value& value, const Value& converted) {
  const Value& found = value.kind() == Kind::kTensor ? value : converted;
  if (found.kind() != Kind::kTensor) throw Error(ErrorCode::kDataType, "expected a tensor, got " + type_name(value));
  return Tensor(static_cast<TensorObject*>(found.object()));
}

const OpaqueObject& opaque(const Value& value) { return static_cast<const OpaqueObject&>(*value.object()); }

}  // namespace

Tensor Value::as_tensor() const {
  Tensor tensor = tensor_in(*this, kind_ == Kind::kOpaque ? opaque(*this).to_tensor() : Value());
  require_cpu_memory(tensor->device(), "the tensor");
  return tensor;
}

Tensor Value::as_device_tensor(std::int64_t stream) const {
  Tensor tensor = tensor_in(*this, kind_ == Kind::kOpaque ? opaque(*this).to_device_tensor(stream) : Value());
  if (kind_ == Kind::kTensor && tensor->order()) tensor->order()(stream);
  return tensor;
}

std::string type_name(const Value& value) {
  if (value.kind() == Kind::kOpaque) return static_cast<const OpaqueObject*>(value.object())->type_name();
  return kind_name(value.kind());
}

void check_nesting(std::size_t nesting) {
  if (nesting > kMaxNesting)
    throw Error(
        ErrorCode::kDataType,
        "lists and dicts nest at most " + std::to_string(kMaxNesting) +
            " levels deep, got a deeper one or one that contains itself; flatten it, or pass it as text or bytes");
}

namespace {

// The values that the outermost deferred destruction of a thread still has to destroy. The first ones need no memory, so that a
// chain never does.
class PendingValues {
 public:
  // False, and `value` is as before, when out of memory.
  bool push(Value& value) noexcept {
    if (count_ < first_.size()) {
      first_[count_++] = std::move(value);
      return true;
    }
    try {
      more_.push_back(std::move(value));
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  bool empty() const noexcept { return count_ == 0; }
  Value pop() noexcept {
    if (more_.empty()) return std::move(first_[--count_]);
    Value last = std::move(more_.back());
    more_.pop_back();
    return last;
  }

 private:
  std::array<Value, 4> first_;
  std::size_t count_ = 0;
  std::vector<Value> more_;  // empty while first_ is not full
};

}  // namespace

// Without memory for a queued value it is destroyed here, nested.
void deferred_destroy(Value value) noexcept {
  thread_local PendingValues* pending = nullptr;  // owned by the outermost call
  if (pending) {
    pending->push(value);
    return;
  }
  PendingValues mine;
  pending = &mine;
  value = Value();
  while (!mine.empty()) mine.pop();
  pending = nullptr;
}

Value make_bytes(std::string bytes) { return Value::adopt(new OwnedText(Kind::kBytes, std::move(bytes))); }

Value make_list(std::vector<Value> items) { return Value::adopt(new OwnedList(std::move(items))); }

Value make_dict(std::vector<std::pair<std::string, Value>> entries) {
  return Value::adopt(new OwnedMap(std::move(entries)));
}

}  // namespace hami
