// What a key of a request holds: 16 bytes, a kind and either the thing itself or one counted reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hami {

// The numbers are those of the plugin contract and never change; an unknown kind is carried, never interpreted.
enum class Kind : std::int32_t {
  kNone = 0,
  kBool = 1,
  kInt = 2,
  kFloat = 3,
  kStr = 16,  // from here on: a counted object
  kBytes = 17,
  kList = 18,
  kDict = 19,
  kTensor = 20,
  kEvent = 21,
  kBackend = 22,
  kOpaque = 23,
};

const char* kind_name(Kind kind) noexcept;  // "int", "str", …

// Base of everything that is counted. The last reference deletes it, on whatever thread that is.
class Object {
 public:
  explicit Object(Kind kind) noexcept : kind_(kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Kind kind() const noexcept { return kind_; }
  // The object of another language that this one stands for (a PyObject*), or null. It goes back as it came.
  virtual void* foreign() const noexcept { return nullptr; }
  // How many lists and dicts are within each other here, this one counted. 0 for all else, and for those of another
  // language: what is in them shows when somebody looks.
  virtual std::size_t nesting() const noexcept { return 0; }

  void retain() const noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // True if there is one reference to it.
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

  // Takes over the caller's reference.
  static Value adopt(Object* object) noexcept {
    Value value;
    value.kind_ = object->kind();
    value.object_ = object;
    return value;
  }

  // Adds a reference to an object that others hold too.
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

  // Each throws Error(kDataType) that names both kinds when the value is of another one.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_float() const;  // an int is taken too
  std::string_view as_text() const;  // str or bytes; valid while this value lives
  const ListObject& as_list() const;
  const MapObject& as_dict() const;
  // A tensor, or an object of another language that shows its memory as one; never a copy.
  Ref<TensorObject> as_tensor() const;

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

// str (UTF-8) or bytes. A language binding derives from it to show its own object's memory without a copy.
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

// Something only its own language understands. Whoever does not know the key passes it on.
class OpaqueObject : public Object {
 public:
  explicit OpaqueObject(const char* type_key) noexcept : Object(Kind::kOpaque), type_key_(type_key) {}
  const char* type_key() const noexcept { return type_key_; }
  // The thing itself, for who knows the key.
  virtual void* pointer() const noexcept { return foreign(); }
  // For messages: what its own language calls the type.
  virtual std::string type_name() const { return "object"; }
  // Its memory as a tensor; None if it has no such thing, Error if it has and it cannot be had.
  virtual Value to_tensor() const { return {}; }

 private:
  const char* type_key_;
};

// Keys in the order in which they were set.
class MapObject : public Object {
 public:
  MapObject() noexcept : Object(Kind::kDict) {}
  virtual const std::vector<std::pair<std::string, Value>>& entries() const = 0;
};

// As deep as lists and dicts nest, so that whoever recurses over a value (to convert, to copy, to destroy it) has the stack.
inline constexpr std::size_t kMaxNesting = 1000;
// Error(kDataType) if so many within each other are more than that.
void check_nesting(std::size_t nesting);

// The end of a value in what may hold its like without a limit, as an event may hold an event: where such ends are going on,
// it comes after them, not inside, so that no chain of them runs out of stack.
void deferred_destroy(Value value) noexcept;

std::string type_name(const Value& value);  // "int", "str", "tensor", …; of an opaque object its own type

Value make_bytes(std::string bytes);
// Error(kDataType) for both if they nest too deep.
Value make_list(std::vector<Value> items);
Value make_dict(std::vector<std::pair<std::string, Value>> entries);

}  // namespace hami
