// TensorObject: a tensor, imported through DLPack or allocated here in CPU memory, kept alive by counted references.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/api.hpp"
#include "hami/elements.hpp"
#include "value/error.hpp"
#include "value/value.hpp"

namespace hami {

using Shape = std::vector<std::int64_t>;

// Returns the number of elements. Error(kDataType) if the struct is inconsistent, so that reading it could end the process;
// its memory may be on any device.
std::size_t check_dlpack(const DLTensor& tensor);

// Shape, dtype and address never change; the contents are up to the users. Value::as_tensor returns tensors in CPU memory only,
// so other code of the core never reads device memory.
class TensorObject final : public Object {
 public:
  // Makes later work on a stream of the device wait until the memory is written.
  using Order = std::function<void(std::int64_t stream)>;

  // Takes ownership of `managed`, also if it throws: Error(kDataType) for device memory, for elements that are not whole
  // bytes, and for an inconsistent struct.
  static Ref<TensorObject> adopt(DLManagedTensorVersioned* managed);
  // The same for memory on any device.
  static Ref<TensorObject> adopt_on_device(DLManagedTensorVersioned* managed, Order order);
  ~TensorObject() override;

  DLDataType dtype() const noexcept { return managed_->dl_tensor.dtype; }
  DLDevice device() const noexcept { return managed_->dl_tensor.device; }
  const Order& order() const noexcept { return order_; }  // empty: the memory can be used at once
  const Shape& shape() const noexcept { return shape_; }
  const Shape& strides() const noexcept { return strides_; }  // in elements
  std::size_t rank() const noexcept { return shape_.size(); }
  char* data() const noexcept { return data_; }  // the first element; null if the tensor is empty
  bool is_read_only() const noexcept { return (managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }

  std::size_t count() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * item_size(dtype()); }
  bool is_contiguous() const noexcept;  // in row-major order without gaps

 private:
  TensorObject(DLManagedTensorVersioned* managed, Order order);

  DLManagedTensorVersioned* managed_;
  Order order_;
  Shape shape_;
  Shape strides_;
  char* data_ = nullptr;
  std::size_t count_ = 1;
};

using Tensor = Ref<TensorObject>;

inline Value to_value(const Tensor& tensor) noexcept { return Value::share(*tensor); }

// Allocates uninitialised memory, aligned to 64 bytes. Error(kRequest) if the shape is too large.
Tensor make_tensor(Shape shape, DLDataType type);

// A view of the memory of `tensor`, which it keeps alive. The caller ensures that the view is within bounds.
Tensor make_view(const Tensor& tensor, Shape shape, Shape strides, std::int64_t first_element = 0);
// The same memory with elements of another type of the same size.
Tensor reinterpret(const Tensor& tensor, DLDataType type);
// Rows [first, first + count) along axis 0.
Tensor slice_rows(const Tensor& tensor, std::int64_t first, std::int64_t count);

// The tensor itself if it is contiguous, else a contiguous copy.
Tensor contiguous(const Tensor& tensor);
// Always a contiguous copy.
Tensor copy(const Tensor& tensor);
// Writes the elements in row-major order to `to`, a buffer of bytes().
void copy_elements(const TensorObject& tensor, char* to) noexcept;

// A DLPack struct that keeps `tensor` alive until its deleter is called, on any thread. The memory may be on any device.
DLManagedTensorVersioned* export_tensor(const Tensor& tensor, std::uint64_t more_flags = 0);

Shape contiguous_strides(const Shape& shape);
std::string show_shape(const Shape& shape);           // "[4, 3, 224, 224]"
std::string show_tensor(const TensorObject& tensor);  // "float32 [4, 3, 224, 224]"
std::string show_device(DLDevice device);             // "cpu", "cuda:0"
DLDevice read_device(const std::string& text);        // of "cpu" or "cuda:0"; Error(kConfig) for other text
// Memory that the CPU can read directly.
bool is_cpu_memory(DLDevice device) noexcept;
// Error(kDataType) if `what`, such as "the tensor", is in memory that the CPU cannot read.
void require_cpu_memory(DLDevice device, const std::string& what);

}  // namespace hami
