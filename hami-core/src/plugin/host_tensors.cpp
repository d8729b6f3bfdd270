// Host functions: tensors. They cross the ABI as DLPack, without a copy.
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"
#include "value/tensor.hpp"

namespace hami {
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
