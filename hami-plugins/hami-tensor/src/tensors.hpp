// Shared by the backends, which compute in CPU memory: `data` that is a tensor, or a list or dict of tensors.
#pragma once

#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>
#include <hami/elements.hpp>
#include <hami/function_table.hpp>
#include <hami/model_keys.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hami_tensor {

using Shape = std::vector<std::int64_t>;

inline constexpr std::string_view kData = "data";
inline constexpr std::string_view kResult = "result";

std::string in_quotes(std::string_view text);
std::string show_shape(const Shape& shape);           // "[4, 3, 224, 224]"
std::string show_tensor(const hami::Tensor& tensor);  // "float32 [4, 3, 224, 224]"

// True for floating-point numbers that `hami::with_element` knows.
bool is_float(DLDataType type) noexcept;

// The first element; the memory may be read-only.
inline char* data_of(const hami::Tensor& tensor) noexcept { return static_cast<char*>(tensor.view().data); }
inline Shape strides_of(const hami::Tensor& tensor) {
  return {tensor.view().strides, tensor.view().strides + tensor.rank()};
}

// A view of the memory of `tensor`, which it keeps alive. The caller ensures that the view is within bounds.
hami::Tensor make_view(const hami::Tensor& tensor, Shape shape, Shape strides, std::int64_t first_element = 0);
// A view with an axis of length 1 in front.
hami::Tensor with_row_axis(const hami::Tensor& tensor);
// Writes the elements in row-major order to `to`, a buffer of nbytes().
void copy_elements(const hami::Tensor& tensor, char* to) noexcept;
// The tensor itself if it is contiguous, else a contiguous copy.
hami::Tensor contiguous(const hami::Tensor& tensor);

// The tensors in `data` of a request: one, or those of a list or dict. Results have the same form.
struct TensorItems {
  std::int32_t form = HAMI_TENSOR;  // or HAMI_LIST, HAMI_DICT
  std::vector<std::string> keys;    // of a dict
  std::vector<hami::Tensor> tensors;

  // The name of one of them, for messages: "`data`", "element 1 of `data`", "\"boxes\" of `data`".
  std::string name(std::size_t index) const;
  bool same_form(const TensorItems& other) const;
  std::string show_form() const;  // "a tensor", "a list of 2 tensors", "a dict of tensors (boxes, scores)"
  // Values in the same form, one for each tensor.
  hami::Value with(const std::vector<hami::Value>& values) const;
};

// `taker` is the backend's label, for messages. Error(HAMI_REQUEST) without `data`, Error(HAMI_DATA_TYPE) for other types.
TensorItems read_tensors(const hami::Dict& item, const std::string& taker);
TensorItems read_tensors(const hami::Value& data, const std::string& taker);

// Base class of the backends. Data in device memory goes to the implementation of the same name for the device.
class TensorBackend : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT;
  static constexpr std::uint32_t kByDevice = HAMI_EACH_REQUEST_BY_DEVICE;

 protected:
  std::string name() const { return std::string(label()); }
};

// Base class of backends that map each tensor to a value. A request with unsuitable tensors fails alone.
class EachTensor : public TensorBackend {
 private:
  void forward_(hami::Batch batch) final;
  virtual TensorItems read(const hami::Dict& item) const { return read_tensors(item, name()); }
  virtual std::vector<hami::Value> apply_to(const hami::Dict& item, const TensorItems& items) const;
  virtual hami::Value apply(const hami::Tensor& tensor) const { return tensor; }
};

// The rows of a request in a concatenated tensor are its `request_size` or, if it has none, those of its own tensors. The
// key `tensor_rows` passes them from FixTensor and CatTensor to SplitTensor, which removes it. The caller's dict does not
// get it.
inline constexpr std::string_view kTensorRows = "tensor_rows";
inline constexpr std::int64_t kWithoutBatchAxis = -1;  // one row, and its tensors had no batch axis
std::optional<std::int64_t> tensor_rows(const hami::Dict& item);
// The number of rows, also of a request without the key.
std::int64_t count_rows(const hami::Dict& item);

// The axis that a parameter names, counted from the end if negative; Error(HAMI_REQUEST) if the tensor has no such axis.
std::size_t axis_of(const hami::Tensor& tensor, std::int64_t axis, const std::string& taker);

}  // namespace hami_tensor
