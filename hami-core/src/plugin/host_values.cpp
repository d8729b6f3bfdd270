// Host functions: values. Texts, lists, dicts, opaque pointers, and tensors, which cross the ABI as DLPack, without a copy.

#include "backend/api.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"

namespace hami {

// ---- Host functions: values. Texts, lists, dicts and opaque pointers.

namespace {

// A plugin's object, which only code that knows its type key can interpret.
class NativeOpaque final : public OpaqueObject {
 public:
  NativeOpaque(std::unique_ptr<const std::string> key, void* object, void (*destroy)(void*)) noexcept
      : OpaqueObject(key->c_str()), key_(std::move(key)), pointer_(object), destroy_(destroy) {}
  ~NativeOpaque() override {
    if (!destroy_) return;
    try {
      call_plugin("the release function", key_->c_str(), [&] { destroy_(pointer_); });
    } catch (const Error& error) {
      log("hami", error.message());
    }
  }
  void* pointer() const noexcept override { return pointer_; }
  std::string type_name() const override { return *key_; }

 private:
  std::unique_ptr<const std::string> key_;
  void* pointer_;
  void (*destroy_)(void*);
};

std::string utf8(const char* data, std::size_t size) {
  const std::string_view text = view_of(data, size);
  check_utf8("a str", text, "; pass other data as bytes");
  return std::string(text);
}

// No longer text or list fits into memory: the length is negative or uninitialised.
void check_length(std::size_t length) {
  if (length > PTRDIFF_MAX / sizeof(hami_value))
    throw Error(ErrorCode::kInvalidArgument,
                "a length of " + std::to_string(length) + " is larger than the address space");
}

std::vector<Value> values_of(const hami_value* items, std::size_t n) {
  check_length(n);
  std::vector<Value> values;
  values.reserve(n);
  for (std::size_t i = 0; i < n; ++i) values.push_back(borrow(items[i]));
  return values;
}

void check_index(std::size_t index, std::size_t size) {
  if (index >= size)
    throw Error(ErrorCode::kInvalidArgument,
                "index " + std::to_string(index) + " is out of range: there are " + std::to_string(size) + " items");
}

void new_opaque(const char* type_key, void* pointer, void (*release)(void*), hami_value* out) {
  try {
    if (!type_key || !*type_key) throw Error(ErrorCode::kInvalidArgument, "an opaque value needs a type key");
    check_utf8("a type key", type_key);
    auto key = std::make_unique<const std::string>(type_key);
    *out = release_to_abi(Value::adopt(new NativeOpaque(std::move(key), pointer, release)));
  } catch (...) {
    if (release) release(pointer);
    throw;
  }
}

}  // namespace

std::string escape_invalid_utf8(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.valid)
      escaped.append(text.substr(at, point.bytes));
    else
      escaped += show_code_point(text, at).text;
    at += point.bytes;
  }
  return escaped;
}

void check_utf8(const char* what, std::string_view text, const char* remedy) {
  check_length(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid)
      throw Error(ErrorCode::kInvalidArgument, std::string(what) + " must be UTF-8, got " + in_quotes(text) +
                                                   " with an invalid byte at offset " + std::to_string(at) + remedy);
    at += point.bytes;
  }
}

Value borrow(const hami_value& raw) {
  Value value;
  if (raw.kind >= HAMI_STR) {
    // hami_object is Object for plugins, which cannot look into it.
    Object* object = reinterpret_cast<Object*>(raw.as.o);
    if (!object || static_cast<std::int32_t>(object->kind()) != raw.kind)
      throw Error(ErrorCode::kInvalidArgument, "the value has kind " + std::to_string(raw.kind) +
                                                   ", but its object is " +
                                                   (object ? std::string("a ") + kind_name(object->kind()) : "NULL"));
    return Value::share(*object);
  }
  std::memcpy(static_cast<void*>(&value), &raw, sizeof raw);
  return value;
}

void add_values(hami_host& host) {
  // hami_object is Object for plugins, in both entries.
  HAMI_HOST_ENTRY(host, object_retain, [](hami_object* object) { reinterpret_cast<Object*>(object)->retain(); });
  HAMI_HOST_ENTRY(host, object_release, [](hami_object* object) { reinterpret_cast<Object*>(object)->release(); });
  HAMI_HOST_ENTRY(host, str_new, [](const char* text, std::size_t size, hami_value* out) {
    *out = release_to_abi(Value(utf8(text, size)));
  });
  HAMI_HOST_ENTRY(host, bytes_new, [](const void* bytes, std::size_t size, hami_value* out) {
    check_length(size);
    *out = release_to_abi(make_bytes(std::string(view_of(static_cast<const char*>(bytes), size))));
  });
  HAMI_HOST_ENTRY(host, text_view,
                  [](const hami_value* value, hami_text* out) { *out = text_of(borrow(*value).as_text()); });
  HAMI_HOST_ENTRY(host, list_new, [](const hami_value* items, std::size_t n, hami_value* out) {
    *out = release_to_abi(make_list(values_of(items, n)));
  });
  HAMI_HOST_ENTRY(host, list_size,
                  [](const hami_value* value, std::size_t* out) { *out = borrow(*value).as_list().size(); });
  HAMI_HOST_ENTRY(host, list_at, [](const hami_value* value, std::size_t index, hami_value* out) {
    const Value list = borrow(*value);
    check_index(index, list.as_list().size());
    *out = release_to_abi(list.as_list().at(index));
  });
  HAMI_HOST_ENTRY(host, map_new, [](const hami_text* keys, const hami_value* values, std::size_t n, hami_value* out) {
    check_length(n);
    std::vector<std::pair<std::string, Value>> entries;
    for (std::size_t i = 0; i < n; ++i) entries.emplace_back(utf8(keys[i].data, keys[i].size), borrow(values[i]));
    *out = release_to_abi(make_dict(std::move(entries)));
  });
  HAMI_HOST_ENTRY(host, map_size,
                  [](const hami_value* value, std::size_t* out) { *out = borrow(*value).as_dict().entries().size(); });
  HAMI_HOST_ENTRY(host, map_at, [](const hami_value* value, std::size_t index, hami_text* key, hami_value* out) {
    const Value map = borrow(*value);
    const auto& entries = map.as_dict().entries();
    check_index(index, entries.size());
    *key = text_of(entries[index].first);
    *out = release_to_abi(entries[index].second);
  });
  HAMI_HOST_ENTRY(host, opaque_new, new_opaque);
  HAMI_HOST_ENTRY(host, opaque_view, [](const hami_value* value, hami_text* type_key, void** pointer) {
    const Value given = borrow(*value);
    if (given.kind() != Kind::kOpaque)
      throw Error(ErrorCode::kDataType, "expected an opaque value, got " + type_name(given));
    const auto& opaque = static_cast<const OpaqueObject&>(*given.object());
    *type_key = text_of(opaque.type_key());
    *pointer = opaque.pointer();
  });
}

// ---- Host functions: tensors. They cross the ABI as DLPack, without a copy.

namespace {

Tensor tensor_of(const hami_value& raw) { return borrow(raw).as_tensor(); }

DLTensor dl_tensor_of(const TensorObject& tensor) {
  return {tensor.data(),
          tensor.device(),
          static_cast<std::int32_t>(tensor.rank()),
          tensor.dtype(),
          const_cast<std::int64_t*>(tensor.shape().data()),
          const_cast<std::int64_t*>(tensor.strides().data()),
          0};
}

std::uint64_t flags_of(const TensorObject& tensor) { return tensor.is_read_only() ? DLPACK_FLAG_BITMASK_READ_ONLY : 0; }

// The tensor of an object of another language is temporary: a view of it would dangle.
const TensorObject& lasting_tensor(const Value& given) {
  if (given.kind() != Kind::kTensor) throw Error(ErrorCode::kDataType, "expected a tensor, got " + type_name(given));
  return static_cast<const TensorObject&>(*given.object());
}

}  // namespace

void add_tensors(hami_host& host) {
  HAMI_HOST_ENTRY(host, tensor_new,
                  [](DLDataType type, const std::int64_t* shape, std::int32_t n_axes, hami_value* out) {
    if (n_axes < 0)
      throw Error(ErrorCode::kInvalidArgument,
                  "the number of axes must not be negative, got " + std::to_string(n_axes));
    if (type.bits == 0 || type.bits % 8 != 0 || type.lanes == 0)
      throw Error(ErrorCode::kDataType, "the elements of a tensor must be whole bytes, got " + dtype_name(type));
    *out = release_to_abi(to_value(make_tensor(Shape(shape, shape + n_axes), type)));
  });
  HAMI_HOST_ENTRY(host, tensor_adopt, [](DLManagedTensorVersioned* tensor, hami_value* out) {
    if (!tensor) throw Error(ErrorCode::kInvalidArgument, "expected a DLPack tensor, got NULL");
    *out = release_to_abi(to_value(TensorObject::adopt(tensor)));
  });
  HAMI_HOST_ENTRY(host, tensor_of,
                  [](const hami_value* value, hami_value* out) { *out = release_to_abi(to_value(tensor_of(*value))); });
  HAMI_HOST_ENTRY(host, tensor_view, [](const hami_value* value, DLTensor* out, std::uint64_t* flags) {
    const Value given = borrow(*value);
    const TensorObject& tensor = lasting_tensor(given);
    require_cpu_memory(tensor.device(), "the tensor");
    *out = dl_tensor_of(tensor);
    *flags = flags_of(tensor);
  });
  HAMI_HOST_ENTRY(host, tensor_export, [](const hami_value* value, DLManagedTensorVersioned** out) {
    *out = export_tensor(tensor_of(*value));
  });
  HAMI_HOST_ENTRY(host, device_tensor_adopt,
                  [](DLManagedTensorVersioned* tensor,
                     hami_error* (*order)(DLManagedTensorVersioned* tensor, std::int64_t stream), hami_value* out) {
    if (!tensor) throw Error(ErrorCode::kInvalidArgument, "expected a DLPack tensor, got NULL");
    TensorObject::Order ordered;
    if (order) ordered = [tensor, order](std::int64_t stream) { throw_if(order(tensor, stream)); };
    *out = release_to_abi(to_value(TensorObject::adopt_on_device(tensor, std::move(ordered))));
  });
  HAMI_HOST_ENTRY(host, device_tensor_of, [](const hami_value* value, std::int64_t stream, hami_value* out) {
    *out = release_to_abi(to_value(borrow(*value).as_device_tensor(stream)));
  });
  HAMI_HOST_ENTRY(host, device_tensor_view, [](const hami_value* value, DLTensor* out, std::uint64_t* flags) {
    const Value given = borrow(*value);
    const TensorObject& tensor = lasting_tensor(given);
    *out = dl_tensor_of(tensor);
    *flags = flags_of(tensor);
  });
}

}  // namespace hami
