// Value: what a key of a request holds. 16 bytes: a kind, and a scalar or a counted reference to an object.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hami/dlpack.h"

namespace hami {

// The numbers are part of the plugin ABI and never change. A value of an unknown kind is passed on unread.
enum class Kind : std::int32_t {
  kNone = 0,
  kBool = 1,
  kInt = 2,
  kFloat = 3,
  kStr = 16,  // this kind and all after it refer to a counted object
  kBytes = 17,
  kList = 18,
  kDict = 19,
  kTensor = 20,
  kEvent = 21,
  kBackend = 22,
  kOpaque = 23,
};

const char* kind_name(Kind kind) noexcept;  // "int", "str", …

// Base of counted objects. Dropping the last reference deletes the object, on any thread.
class Object {
 public:
  explicit Object(Kind kind) noexcept : kind_(kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Kind kind() const noexcept { return kind_; }
  // The object of another language that this one represents (a PyObject*), or null. Code in that language gets the same
  // object back.
  virtual void* foreign() const noexcept { return nullptr; }
  // The depth of nested lists and dicts, this one included. 0 for other kinds, and for objects of another language, which
  // are only read on demand.
  virtual std::size_t nesting() const noexcept { return 0; }

  void retain() const noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // True if this is the only reference.
  bool alone() const noexcept { return references_.load(std::memory_order_acquire) == 1; }
  void release() const noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  mutable std::atomic<std::uint32_t> references_{1};
  Kind kind_;
};

class ListObject;
class MapObject;
class TensorObject;
template <class T>
class Ref;

class Value {
 public:
  Value() noexcept : kind_(Kind::kNone), int_(0) {}
  Value(bool value) noexcept : kind_(Kind::kBool), int_(value) {}
  Value(int value) noexcept : kind_(Kind::kInt), int_(value) {}
  Value(std::int64_t value) noexcept : kind_(Kind::kInt), int_(value) {}
  Value(double value) noexcept : kind_(Kind::kFloat), float_(value) {}
  Value(std::string text);
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string_view text) : Value(std::string(text)) {}

  // Takes ownership of the caller's reference.
  static Value adopt(Object* object) noexcept {
    Value value;
    value.kind_ = object->kind();
    value.object_ = object;
    return value;
  }

  // Adds a reference.
  static Value share(Object& object) noexcept {
    object.retain();
    return adopt(&object);
  }

  Value(const Value& other) noexcept : kind_(other.kind_), int_(other.int_) {
    if (is_counted()) object_->retain();
  }
  Value(Value&& other) noexcept : kind_(std::exchange(other.kind_, Kind::kNone)), int_(std::exchange(other.int_, 0)) {}
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(int_, other.int_);
    return *this;
  }
  ~Value() {
    if (is_counted()) object_->release();
  }

  Kind kind() const noexcept { return kind_; }
  bool is_none() const noexcept { return kind_ == Kind::kNone; }
  bool is_counted() const noexcept { return static_cast<std::int32_t>(kind_) >= 16; }
  Object* object() const noexcept { return is_counted() ? object_ : nullptr; }

  // Each throws Error(kDataType), which names both kinds, if the value is of another kind.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_float() const;           // also of an int
  std::string_view as_text() const;  // str or bytes; valid while this value exists
  const ListObject& as_list() const;
  const MapObject& as_dict() const;
  // A tensor, or an object of another language that exports its memory as one; never a copy. Error if its memory is on
  // a device.
  Ref<TensorObject> as_tensor() const;
  // The same for memory on any device, ordered with a stream of that device.
  Ref<TensorObject> as_device_tensor(std::int64_t stream) const;

 private:
  Kind kind_;
  [[maybe_unused]] std::uint32_t zero_ = 0;
  union {
    std::int64_t int_;
    double float_;
    Object* object_;
  };
};
static_assert(sizeof(Value) == 16);

// str (UTF-8) or bytes. A language binding derives from it to expose its own object's memory without a copy.
class TextObject : public Object {
 public:
  using Object::Object;
  virtual std::string_view view() const noexcept = 0;
};

class ListObject : public Object {
 public:
  ListObject() noexcept : Object(Kind::kList) {}
  virtual std::size_t size() const = 0;
  virtual Value at(std::size_t index) const = 0;
};

// An object that only code which knows its type key can interpret. All other code passes it on.
class OpaqueObject : public Object {
 public:
  explicit OpaqueObject(const char* type_key) noexcept : Object(Kind::kOpaque), type_key_(type_key) {}
  const char* type_key() const noexcept { return type_key_; }
  // The object itself, for code that knows the key.
  virtual void* pointer() const noexcept { return foreign(); }
  // For messages: the name of its type in its own language.
  virtual std::string type_name() const { return "object"; }
  // Its memory as a tensor; None if it is not a tensor, Error if it is one that cannot be exported.
  virtual Value to_tensor() const { return {}; }
  // Where its memory lies; that of an object that is not a tensor is CPU memory.
  virtual DLDevice device() const { return {kDLCPU, 0}; }
  // The same as to_tensor for memory on any device, ordered with a stream of that device.
  virtual Value to_device_tensor(std::int64_t) const { return to_tensor(); }

 private:
  const char* type_key_;
};

// Entries in insertion order.
class MapObject : public Object {
 public:
  MapObject() noexcept : Object(Kind::kDict) {}
  virtual const std::vector<std::pair<std::string, Value>>& entries() const = 0;
};

// The maximum depth of nested lists and dicts: code that recurses over a value (conversion, copy, destruction) must not run
// out of stack.
inline constexpr std::size_t kMaxNesting = 1000;
// Error(kDataType) if `nesting` is above kMaxNesting.
void check_nesting(std::size_t nesting);

// Destroys a value iteratively: inside another deferred destruction it is queued, so that long chains of owners (an event
// that holds an event that holds …) cannot overflow the stack.
void deferred_destroy(Value value) noexcept;

std::string type_name(const Value& value);  // "int", "str", "tensor", …; for an opaque object the name of its own type

Value make_bytes(std::string bytes);
// Both throw Error(kDataType) if the nesting is too deep.
Value make_list(std::vector<Value> items);
Value make_dict(std::vector<std::pair<std::string, Value>> entries);

}  // namespace hami
