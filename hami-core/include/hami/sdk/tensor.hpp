// Tensor: elements in CPU memory, or in that of a device. Copies share the memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hami/sdk/value.hpp"

namespace hami {
inline namespace sdk {

// The DLPack type of a C++ number.
template <class T>
constexpr DLDataType dtype_of() noexcept {
  static_assert(std::is_arithmetic_v<T>, "the elements of a tensor must be numbers");
  const std::uint8_t code = std::is_same_v<T, bool>       ? kDLBool
                            : std::is_floating_point_v<T> ? kDLFloat
                            : std::is_signed_v<T>         ? kDLInt
                                                          : kDLUInt;
  return {code, static_cast<std::uint8_t>(8 * sizeof(T)), 1};
}

class Tensor {
 public:
  // Error(HAMI_DATA_TYPE) if the value is not a tensor.
  explicit Tensor(const Value& value) {
    hami_value raw;
    check(host().tensor_of(&value.raw(), &raw));
    hold(raw);
  }
  // Uninitialised memory of the core, aligned to 64 bytes.
  static Tensor make(DLDataType type, const std::vector<std::int64_t>& shape) {
    hami_value raw;
    check(host().tensor_new(type, shape.data(), static_cast<std::int32_t>(shape.size()), &raw));
    return Tensor(raw);
  }
  template <class T>
  static Tensor make(const std::vector<std::int64_t>& shape) {
    return make(dtype_of<T>(), shape);
  }
  // Takes ownership of memory of another library.
  static Tensor adopt(DLManagedTensorVersioned* managed) {
    hami_value raw;
    check(host().tensor_adopt(managed, &raw));
    return Tensor(raw);
  }
#if HAMI_ABI_USE_MINOR >= 1
  // Of memory on any device, ordered with a stream of that device (see abi.h). Needs HAMI_ABI_MIN_MINOR 1, as do the others of 1.1.
  static Tensor on_device(const Value& value, std::int64_t stream) {
    hami_value raw;
    check(host().device_tensor_of(&value.raw(), stream, &raw));
    return Tensor(raw);
  }
  // Takes ownership of memory on any device.
  static Tensor adopt_on_device(DLManagedTensorVersioned* managed,
                                hami_error* (*order)(DLManagedTensorVersioned*, std::int64_t)) {
    hami_value raw;
    check(host().device_tensor_adopt(managed, order, &raw));
    return Tensor(raw);
  }
#endif

  operator const Value&() const noexcept { return value_; }

  DLDevice device() const noexcept { return view_.device; }

  DLDataType dtype() const noexcept { return view_.dtype; }
  std::vector<std::int64_t> shape() const { return {view_.shape, view_.shape + view_.ndim}; }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(view_.ndim); }
  std::size_t count() const noexcept {
    std::size_t count = 1;
    for (std::int32_t axis = 0; axis < view_.ndim; ++axis) count *= static_cast<std::size_t>(view_.shape[axis]);
    return count;
  }
  std::size_t nbytes() const noexcept {
    return count() * (static_cast<std::size_t>(view_.dtype.bits) * view_.dtype.lanes / 8);
  }
  bool is_read_only() const noexcept { return (flags_ & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }
  // Contiguous in row-major order.
  bool is_contiguous() const noexcept {
    if (count() == 0) return true;
    std::int64_t expected = 1;
    for (std::int32_t axis = view_.ndim; axis-- > 0;) {
      if (view_.shape[axis] != 1 && view_.strides[axis] != expected) return false;
      expected *= view_.shape[axis];
    }
    return true;
  }
  // The DLPack description, with shape and strides. Valid while this tensor exists.
  const DLTensor& view() const noexcept { return view_; }

  // The first element. Error(HAMI_DATA_TYPE) if the elements are not of type T or not contiguous, or if the tensor is read-only
  // and T is not const.
  template <class T>
  T* data() const {
    const DLDataType expected = dtype_of<std::remove_const_t<T>>();
    if (view_.dtype.code != expected.code || view_.dtype.bits != expected.bits || view_.dtype.lanes != 1)
      throw Error(HAMI_DATA_TYPE, "the elements of the tensor do not have the expected type");
    if (!is_contiguous()) throw Error(HAMI_DATA_TYPE, "the tensor is not contiguous in row-major order");
    if (!std::is_const_v<T> && is_read_only()) throw Error(HAMI_DATA_TYPE, "the tensor is read-only");
    return static_cast<T*>(view_.data);
  }

 private:
  explicit Tensor(hami_value raw) { hold(raw); }
  void hold(hami_value raw) {
    value_ = Value::adopt(raw);
#if HAMI_ABI_USE_MINOR >= 1
    if (host().device_tensor_view) return check(host().device_tensor_view(&value_.raw(), &view_, &flags_));
#endif
    check(host().tensor_view(&value_.raw(), &view_, &flags_));
  }

  Value value_;
  DLTensor view_{};
  std::uint64_t flags_ = 0;
};

inline Tensor Value::as_tensor() const { return Tensor(*this); }

}  // namespace sdk
}  // namespace hami
