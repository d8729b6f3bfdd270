// Tensors of the core over memory of a device, and reading them from requests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime.hpp"
#include "sdk.hpp"

namespace hami_cuda {

using Shape = std::vector<std::int64_t>;

std::size_t item_size(DLDataType type);
std::size_t count_of(const Shape& shape);
std::string show(const DLTensor& tensor);  // "uint8 [1, 3, 480, 640]"
std::string show(const hami::Tensor& tensor);
std::string show(const Shape& shape);
bool same_type(DLDataType one, DLDataType other);
// The type as the kernels of scores.cu name it; nullopt for others, such as complex numbers.
std::optional<hami_cuda_number> number_of(DLDataType type);
std::string type_name(DLDataType type);  // "float32", as NumPy

constexpr DLDataType kIndex{kDLInt, 64, 1};  // the type of indices in results

constexpr std::size_t kAlignment = 256;  // bytes, as cuMemAlloc

// Where each result of a batch is in one block of memory; starts are aligned as CUDA aligns allocations.
class Layout {
 public:
  // The start of a part of `bytes`. A part without elements has an address too.
  std::size_t add(std::size_t bytes);
  std::size_t size() const noexcept { return size_; }

 private:
  std::size_t size_ = 0;
};

bool is_contiguous(const DLTensor& tensor);  // in row-major order; of tensors with elements

// As device_tensor, outside of the core.
DLManagedTensorVersioned* managed_tensor(std::shared_ptr<Memory> memory, DLDataType type, Shape shape,
                                         Shape strides = {}, std::size_t offset = 0);
// Orders a tensor of managed_tensor with a stream.
hami_error* order_tensor(DLManagedTensorVersioned* tensor, std::int64_t stream);

// A tensor at `offset` of `memory`; contiguous if `strides`, in elements, is empty.
hami::Tensor device_tensor(std::shared_ptr<Memory> memory, std::size_t offset, DLDataType type, Shape shape,
                           Shape strides = {});
// The same in host memory.
hami::Tensor host_tensor(std::shared_ptr<void> memory, std::size_t offset, DLDataType type, Shape shape);

// A tensor of another package that `stream` can use: work on other streams waits for it too, and freeing it for that work.
hami::Tensor foreign_tensor(hami::Tensor tensor, std::shared_ptr<Stream> stream);

// A view of a tensor on a device, which it keeps; `first` and strides are in elements.
hami::Tensor part_view(const hami::Tensor& whole, std::int64_t first, Shape shape, Shape strides);
// Some of the rows of a tensor on a device, which it keeps; the memory is not copied.
hami::Tensor row_view(const hami::Tensor& whole, std::int64_t first_row, Shape shape);
// Tensors that follow each other in memory as one, which keeps them; the memory is not copied.
hami::Tensor joined_view(std::vector<hami::Tensor> parts, Shape shape);
// A copy of a tensor on a device to contiguous memory. Error(HAMI_DATA_TYPE) if it has too many axes; `owner` starts it.
hami_cuda_copy copy_of(const DLTensor& tensor, CUdeviceptr to, const std::string& owner);
inline hami_cuda_copy copy_of(const hami::Tensor& tensor, CUdeviceptr to, const std::string& owner) {
  return copy_of(tensor.view(), to, owner);
}

// Adds the start of their memory to the targets of copies, which were offsets in it.
void move_to(std::vector<hami_cuda_copy>& copies, CUdeviceptr start);

// The request's `data`; Error(HAMI_REQUEST) if it has none.
hami::Value data_of(const hami::Dict& item, const std::string& owner);

// Applies `function` to a value, or to each part of a list or dict; the result has the same structure.
template <class Function>
hami::Value map_parts(const hami::Value& value, const Function& function) {
  if (value.kind() == HAMI_LIST) {
    std::vector<hami::Value> parts;
    for (const hami::Value& part : value.as_list()) parts.push_back(function(part));
    return hami::Value::list(parts);
  }
  if (value.kind() == HAMI_DICT) {
    auto parts = value.as_dict();
    for (auto& [key, part] : parts) part = function(part);
    return hami::Value::dict(parts);
  }
  return function(value);
}

}  // namespace hami_cuda
