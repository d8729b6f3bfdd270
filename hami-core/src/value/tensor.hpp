// Tensors as values: memory that others made or our own, seen through DLPack, kept alive by counted references.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/counted.hpp"
#include "value/tensor_type.hpp"
#include "value/value.hpp"

namespace hami {

using Shape = std::vector<std::int64_t>;

// In CPU memory, always. Shape, dtype and place never change; what lies in the memory is its users' affair.
class TensorObject final : public Object {
 public:
  // Takes over `managed`, also if it throws: Error(kDataType) for memory that is not the CPU's, for elements that are
  // no whole bytes and for a struct that makes no sense.
  static Ref<TensorObject> adopt(DLManagedTensorVersioned* managed);
  ~TensorObject() override;

  DLDataType dtype() const noexcept { return managed_->dl_tensor.dtype; }
  DLDevice device() const noexcept { return managed_->dl_tensor.device; }
  const Shape& shape() const noexcept { return shape_; }
  const Shape& strides() const noexcept { return strides_; }  // in elements
  std::size_t rank() const noexcept { return shape_.size(); }
  char* data() const noexcept { return data_; }  // the first element; null if there is none
  bool is_read_only() const noexcept { return (managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }

  std::size_t count() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * item_size(dtype()); }
  bool is_contiguous() const noexcept;  // row by row without gaps

 private:
  explicit TensorObject(DLManagedTensorVersioned* managed);

  DLManagedTensorVersioned* managed_;
  Shape shape_;
  Shape strides_;
  char* data_ = nullptr;
  std::size_t count_ = 1;
};

using Tensor = Ref<TensorObject>;

inline Value to_value(const Tensor& tensor) noexcept { return Value::share(*tensor); }

// Our own memory, aligned to 64 bytes, not set to anything. Error(kRequest) if the shape is of no possible size.
Tensor make_tensor(Shape shape, DLDataType type);

// Another look at the memory of `tensor`, which stays alive as long; the caller sees to it that it lies within.
Tensor make_view(const Tensor& tensor, Shape shape, Shape strides, std::int64_t first_element = 0);
// Rows [first, first + count) along axis 0.
Tensor slice_rows(const Tensor& tensor, std::int64_t first, std::int64_t count);

// The same tensor if it has no gaps, else a copy that has none.
Tensor contiguous(const Tensor& tensor);
// A contiguous tensor of its own, always.
Tensor copy(const Tensor& tensor);
// Writes the elements row by row to `to`, which has room for bytes().
void copy_elements(const TensorObject& tensor, char* to) noexcept;

// For whoever speaks DLPack: a struct that keeps `tensor` alive until its deleter is called, on any thread.
DLManagedTensorVersioned* export_tensor(const Tensor& tensor, std::uint64_t more_flags = 0);

Shape contiguous_strides(const Shape& shape);
std::string show_shape(const Shape& shape);           // "[4, 3, 224, 224]"
std::string show_tensor(const TensorObject& tensor);  // "float32 [4, 3, 224, 224]"
std::string show_device(DLDevice device);             // "cpu", "cuda:0"
// Memory that the CPU reads like any other.
bool is_cpu_memory(DLDevice device) noexcept;

}  // namespace hami
