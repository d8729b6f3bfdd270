// Makes tensors over device memory, and describes tensors.
#include "device_tensor.hpp"

#include <algorithm>
#include <mutex>
#include <set>

namespace hami_cuda {
namespace {

// Owns the memory of a tensor. Shape and strides are in it, because DLPack points to them.
template <class Memory>
struct Holder {
  DLManagedTensorVersioned managed{};
  Shape shape;
  Shape strides;
  std::shared_ptr<Memory> memory;
};

template <class Memory>
DLManagedTensorVersioned* hold(std::shared_ptr<Memory> memory, void* data, DLDevice device, DLDataType type,
                               Shape shape, Shape strides) {
  auto holder = std::make_unique<Holder<Memory>>();
  holder->shape = std::move(shape);
  holder->strides = std::move(strides);
  holder->memory = std::move(memory);
  DLManagedTensorVersioned& managed = holder->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.manager_ctx = holder.get();
  managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Holder<Memory>*>(self->manager_ctx); };
  managed.dl_tensor = {data,
                       device,
                       static_cast<std::int32_t>(holder->shape.size()),
                       type,
                       holder->shape.data(),
                       holder->strides.empty() ? nullptr : holder->strides.data(),
                       0};
  return &holder.release()->managed;
}

// The memory of a view is ordered as its tensors.
hami_error* order_view(DLManagedTensorVersioned* tensor, std::int64_t stream) {
  return hami::guard([&] {
    for (const hami::Tensor& part : *static_cast<Holder<std::vector<hami::Tensor>>*>(tensor->manager_ctx)->memory)
      hami::Tensor::on_device(part, stream);
  });
}

// A tensor of another package. That package ordered it with one stream of ours and does not know the others.
class Foreign {
 public:
  Foreign(hami::Tensor tensor, std::shared_ptr<Stream> stream)
      : tensor_(std::move(tensor)), stream_(std::move(stream)) {}
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  // The stream of the batch keeps what it reads itself. At the exit of the process the driver may be gone.
  ~Foreign() {
    if (readers_.empty()) return;
    try {
      const CurrentDevice current(stream_->device());
      for (const std::int64_t reader : readers_) {
        Event read(stream_->device());
        read.record(reinterpret_cast<CUstream>(reader));
        read.hold_back(stream_->raw());
      }
      stream_->hold(std::make_shared<hami::Tensor>(std::move(tensor_)));
    } catch (...) {  // the driver is gone, and with it all that was to be ordered
    }
  }

  void order(std::int64_t stream) {
    if (stream == stream_->handle()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const CurrentDevice current(stream_->device());
    stream_->hold_back(stream);
    readers_.insert(stream);
  }

 private:
  hami::Tensor tensor_;
  const std::shared_ptr<Stream> stream_;
  std::mutex mutex_;
  std::set<std::int64_t> readers_;  // other streams; guarded by mutex_
};

template <class Owner>
hami_error* order_owner(DLManagedTensorVersioned* tensor, std::int64_t stream) {
  return hami::guard([&] {
    try {
      static_cast<Holder<Owner>*>(tensor->manager_ctx)->memory->order(stream);
    } catch (const CudaError& error) {
      throw hami::Error(error.code(), error.what());
    }
  });
}

hami::Tensor view_of(std::vector<hami::Tensor> parts, std::int64_t first_byte, Shape shape, Shape strides) {
  const DLTensor& first = parts.front().view();
  void* const data = static_cast<char*>(first.data) + first_byte;
  const DLDevice device = first.device;
  const DLDataType type = first.dtype;
  return hami::Tensor::adopt_on_device(hold(std::make_shared<std::vector<hami::Tensor>>(std::move(parts)), data, device,
                                            type, std::move(shape), std::move(strides)),
                                       order_view);
}

const char* code_name(std::uint8_t code) {
  switch (code) {
    case kDLInt: return "int";
    case kDLUInt: return "uint";
    case kDLFloat: return "float";
    case kDLBfloat: return "bfloat";
    case kDLComplex: return "complex";
    case kDLBool: return "bool";
    default: return "type";
  }
}

}  // namespace

std::size_t item_size(DLDataType type) { return static_cast<std::size_t>(type.bits) * type.lanes / 8; }

std::size_t count_of(const Shape& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

bool same_type(DLDataType one, DLDataType other) {
  return one.code == other.code && one.bits == other.bits && one.lanes == other.lanes;
}

std::optional<hami_cuda_number> number_of(DLDataType type) {
  if (type.lanes != 1) return std::nullopt;
  const auto of_size = [&](int first) -> std::optional<hami_cuda_number> {  // 1, 2, 4 or 8 bytes
    for (int power = 0; power < 4; ++power)
      if (type.bits == 8 << power) return static_cast<hami_cuda_number>(first + 2 * power);
    return std::nullopt;
  };
  switch (type.code) {
    case kDLBool: return type.bits == 8 ? std::optional(HAMI_CUDA_BOOL) : std::nullopt;
    case kDLUInt: return of_size(HAMI_CUDA_UINT8);
    case kDLInt: return of_size(HAMI_CUDA_INT8);
    case kDLBfloat: return type.bits == 16 ? std::optional(HAMI_CUDA_BFLOAT16) : std::nullopt;
    case kDLFloat:
      if (type.bits == 16) return HAMI_CUDA_FLOAT16;
      if (type.bits == 32) return HAMI_CUDA_FLOAT32;
      if (type.bits == 64) return HAMI_CUDA_FLOAT64;
      return std::nullopt;
    default: return std::nullopt;
  }
}

std::string type_name(DLDataType type) {
  return code_name(type.code) + (type.code == kDLBool ? "" : std::to_string(type.bits));
}

std::string show(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

std::string show(const DLTensor& tensor) {
  return type_name(tensor.dtype) + " " + show(Shape(tensor.shape, tensor.shape + tensor.ndim));
}

std::string show(const hami::Tensor& tensor) { return show(tensor.view()); }

bool is_contiguous(const DLTensor& tensor) {
  std::int64_t expected = 1;
  for (int axis = tensor.ndim; axis-- > 0 && tensor.strides;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

std::size_t Layout::add(std::size_t bytes) {
  const std::size_t start = size_;
  size_ += (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  return start;
}

hami_error* order_tensor(DLManagedTensorVersioned* tensor, std::int64_t stream) {
  return order_owner<Memory>(tensor, stream);
}

DLManagedTensorVersioned* managed_tensor(std::shared_ptr<Memory> memory, DLDataType type, Shape shape, Shape strides,
                                         std::size_t offset) {
  void* const data = reinterpret_cast<void*>(memory->start() + offset);
  const DLDevice device{kDLCUDA, memory->stream().device().index()};
  return hold(std::move(memory), data, device, type, std::move(shape), std::move(strides));
}

hami::Tensor device_tensor(std::shared_ptr<Memory> memory, std::size_t offset, DLDataType type, Shape shape,
                           Shape strides) {
  return hami::Tensor::adopt_on_device(
      managed_tensor(std::move(memory), type, std::move(shape), std::move(strides), offset), order_tensor);
}

hami::Tensor host_tensor(std::shared_ptr<void> memory, std::size_t offset, DLDataType type, Shape shape) {
  void* const data = static_cast<char*>(memory.get()) + offset;
  return hami::Tensor::adopt(hold(std::move(memory), data, {kDLCPU, 0}, type, std::move(shape), {}));
}

hami::Tensor foreign_tensor(hami::Tensor tensor, std::shared_ptr<Stream> stream) {
  const DLTensor view = tensor.view();
  Shape shape(view.shape, view.shape + view.ndim);
  Shape strides(view.strides, view.strides ? view.strides + view.ndim : nullptr);
  void* const data = static_cast<char*>(view.data) + view.byte_offset;
  auto memory = std::make_shared<Foreign>(std::move(tensor), std::move(stream));
  return hami::Tensor::adopt_on_device(
      hold(std::move(memory), data, view.device, view.dtype, std::move(shape), std::move(strides)),
      order_owner<Foreign>);
}

hami::Tensor part_view(const hami::Tensor& whole, std::int64_t first, Shape shape, Shape strides) {
  const auto size = static_cast<std::int64_t>(item_size(whole.dtype()));
  return view_of({whole}, first * size, std::move(shape), std::move(strides));
}

hami::Tensor row_view(const hami::Tensor& whole, std::int64_t first_row, Shape shape) {
  const DLTensor& view = whole.view();
  Shape strides(view.strides + view.ndim - static_cast<std::int64_t>(shape.size()), view.strides + view.ndim);
  return part_view(whole, first_row * view.strides[0], std::move(shape), std::move(strides));
}

hami::Tensor joined_view(std::vector<hami::Tensor> parts, Shape shape) {
  return view_of(std::move(parts), 0, std::move(shape), {});
}

hami_cuda_copy copy_of(const DLTensor& view, CUdeviceptr to, const std::string& owner) {
  hami_cuda_copy copy{};
  copy.from = static_cast<const unsigned char*>(view.data) + view.byte_offset;
  copy.to = reinterpret_cast<unsigned char*>(to);
  copy.count = static_cast<long long>(count_of({view.shape, view.shape + view.ndim}));
  copy.size = static_cast<int>(item_size(view.dtype));
  if (is_contiguous(view)) {  // as few large elements
    const std::size_t bytes = static_cast<std::size_t>(copy.count * copy.size);
    for (int size = 8; size > copy.size; size /= 2)
      if ((bytes | to | reinterpret_cast<std::uintptr_t>(copy.from)) % static_cast<std::size_t>(size) == 0) {
        copy.size = size;
        copy.count = static_cast<long long>(bytes) / size;
        break;
      }
    copy.axes = 1;
    copy.shape[0] = copy.count;
    copy.strides[0] = copy.size;
    return copy;
  }
  if (view.ndim > HAMI_CUDA_MAX_AXES)
    throw hami::Error(HAMI_DATA_TYPE, owner + " takes tensors of at most " + std::to_string(HAMI_CUDA_MAX_AXES) +
                                          " axes unless they are contiguous, got " + show(view));
  copy.axes = view.ndim;
  for (int axis = 0; axis < view.ndim; ++axis) {
    copy.shape[axis] = view.shape[axis];
    copy.strides[axis] = view.strides[axis] * copy.size;
  }
  return copy;
}

void move_to(std::vector<hami_cuda_copy>& copies, CUdeviceptr start) {
  for (hami_cuda_copy& copy : copies)
    copy.to = reinterpret_cast<unsigned char*>(reinterpret_cast<CUdeviceptr>(copy.to) + start);
}

hami::Value data_of(const hami::Dict& item, const std::string& owner) {
  if (std::optional<hami::Value> data = item.find("data")) return *std::move(data);
  std::string keys;
  for (const std::string& key : item.keys()) keys += (keys.empty() ? "\"" : ", \"") + key + "\"";
  throw hami::Error(HAMI_REQUEST, owner + ": the request has no \"data\"; its keys are [" + keys + "]");
}

}  // namespace hami_cuda
