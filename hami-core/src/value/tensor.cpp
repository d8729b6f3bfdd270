// TensorObject and its memory.
#include "value/tensor.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "value/error.hpp"

namespace hami {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes: a cache line, and the widest vector registers

// Keeps the memory of a struct of our own alive.
struct Holder {
  DLManagedTensorVersioned managed{};
  Shape shape;
  Shape strides;
  Tensor owner;           // of a view
  void* block = nullptr;  // of a tensor made here

  ~Holder() { std::free(block); }
};

std::unique_ptr<Holder> make_holder(Shape shape, Shape strides, DLDataType type, DLDevice device) {
  auto holder = std::make_unique<Holder>();
  holder->shape = std::move(shape);
  holder->strides = std::move(strides);
  holder->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Holder*>(self->manager_ctx); };
  holder->managed.dl_tensor = {nullptr,
                               device,
                               static_cast<std::int32_t>(holder->shape.size()),
                               type,
                               holder->shape.data(),
                               holder->strides.data(),
                               0};
  return holder;
}

std::unique_ptr<Holder> make_view_holder(const Tensor& tensor, Shape shape, Shape strides, char* data) {
  auto holder = make_holder(std::move(shape), std::move(strides), tensor->dtype(), tensor->device());
  holder->managed.dl_tensor.data = data;
  holder->managed.flags = tensor->is_read_only() ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  holder->owner = tensor;
  return holder;
}

constexpr DLDeviceType kNamedDevices[] = {kDLCPU,         kDLCUDA,   kDLCUDAHost, kDLOpenCL,   kDLVulkan,
                                          kDLMetal,       kDLVPI,    kDLROCM,     kDLROCMHost, kDLExtDev,
                                          kDLCUDAManaged, kDLOneAPI, kDLWebGPU,   kDLHexagon,  kDLMAIA};

const char* device_name(DLDeviceType type) noexcept {
  switch (type) {
    case kDLCPU: return "cpu";
    case kDLCUDA: return "cuda";
    case kDLCUDAHost: return "cuda_host";
    case kDLOpenCL: return "opencl";
    case kDLVulkan: return "vulkan";
    case kDLMetal: return "metal";
    case kDLVPI: return "vpi";
    case kDLROCM: return "rocm";
    case kDLROCMHost: return "rocm_host";
    case kDLExtDev: return "ext_dev";
    case kDLCUDAManaged: return "cuda_managed";
    case kDLOneAPI: return "oneapi";
    case kDLWebGPU: return "webgpu";
    case kDLHexagon: return "hexagon";
    case kDLMAIA: return "maia";
    default: return nullptr;
  }
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kDataType, why); }

// The numbers of elements and bytes must not overflow.
std::size_t count_of(const Shape& shape, std::size_t item) {
  for (std::int64_t size : shape)
    if (size < 0) refuse("a tensor of shape " + show_shape(shape) + ": no axis can be shorter than 0");
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::size_t bytes = item;
  for (std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes) || bytes > PTRDIFF_MAX)
      throw Error(ErrorCode::kRequest, "a tensor of shape " + show_shape(shape) + " is larger than the address space");
  return bytes / item;
}

void copy_axis(const TensorObject& tensor, std::size_t axis, std::size_t solid, std::size_t run, const char* from,
               char*& to) noexcept {
  if (axis == solid) {
    std::memcpy(to, from, run);
    to += run;
    return;
  }
  const std::ptrdiff_t step = tensor.strides()[axis] * static_cast<std::ptrdiff_t>(item_size(tensor.dtype()));
  for (std::int64_t i = 0; i < tensor.shape()[axis]; ++i, from += step)
    copy_axis(tensor, axis + 1, solid, run, from, to);
}

}  // namespace

std::size_t check_dlpack(const DLTensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape)) refuse("a DLPack tensor without a shape");
  const Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  const std::size_t count = count_of(shape, std::max<std::size_t>(1, item_size(tensor.dtype)));
  if (count > 0 && !tensor.data) refuse("a DLPack tensor without memory");
  return count;
}

TensorObject::TensorObject(DLManagedTensorVersioned* managed, Order order)
    : Object(Kind::kTensor), managed_(managed), order_(std::move(order)) {
  const DLTensor& tensor = managed->dl_tensor;
  if (tensor.dtype.bits % 8 != 0 || tensor.dtype.bits == 0 || tensor.dtype.lanes == 0)
    refuse("a tensor of " + dtype_name(tensor.dtype) + ": elements must be whole bytes");
  count_ = check_dlpack(tensor);
  shape_.assign(tensor.shape, tensor.shape + tensor.ndim);
  strides_ = tensor.strides ? Shape(tensor.strides, tensor.strides + tensor.ndim) : contiguous_strides(shape_);
  if (tensor.data) data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
}

namespace {

void let_go(DLManagedTensorVersioned* managed) {
  if (managed->deleter) managed->deleter(managed);
}
using Held = std::unique_ptr<DLManagedTensorVersioned, decltype(&let_go)>;

}  // namespace

Ref<TensorObject> TensorObject::adopt(DLManagedTensorVersioned* managed) {
  Held held(managed, let_go);
  if (managed->version.major == DLPACK_MAJOR_VERSION) require_cpu_memory(managed->dl_tensor.device, "the tensor");
  return adopt_on_device(held.release(), nullptr);
}

Ref<TensorObject> TensorObject::adopt_on_device(DLManagedTensorVersioned* managed, Order order) {
  Held held(managed, let_go);
  if (managed->version.major != DLPACK_MAJOR_VERSION)
    refuse("the tensor is of DLPack " + std::to_string(managed->version.major) + "." +
           std::to_string(managed->version.minor) + "; this hami-core reads DLPack 1");
  // A constructor that throws runs no destructor: `held` frees the memory.
  const Tensor made = Tensor::adopt(new TensorObject(managed, std::move(order)));
  held.release();
  return made;
}

TensorObject::~TensorObject() { let_go(managed_); }

bool TensorObject::is_contiguous() const noexcept {
  if (count_ == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t axis = rank(); axis-- > 0;) {
    if (shape_[axis] != 1 && strides_[axis] != expected) return false;
    expected *= shape_[axis];
  }
  return true;
}

Tensor make_tensor(Shape shape, DLDataType type) {
  const std::size_t bytes = count_of(shape, item_size(type)) * item_size(type);
  Shape strides = contiguous_strides(shape);
  auto holder = make_holder(std::move(shape), std::move(strides), type, {kDLCPU, 0});
  if (posix_memalign(&holder->block, kAlignment, bytes > 0 ? bytes : 1) != 0) throw std::bad_alloc();
  holder->managed.dl_tensor.data = holder->block;
  return TensorObject::adopt(&holder.release()->managed);
}

Tensor make_view(const Tensor& tensor, Shape shape, Shape strides, std::int64_t first_element) {
  char* data = tensor->data();
  if (data) data += first_element * static_cast<std::ptrdiff_t>(item_size(tensor->dtype()));
  auto holder = make_view_holder(tensor, std::move(shape), std::move(strides), data);
  return TensorObject::adopt_on_device(&holder.release()->managed, tensor->order());
}

Tensor reinterpret(const Tensor& tensor, DLDataType type) {
  HAMI_ASSERT(item_size(type) == item_size(tensor->dtype()));
  auto holder = make_view_holder(tensor, tensor->shape(), tensor->strides(), tensor->data());
  holder->managed.dl_tensor.dtype = type;
  return TensorObject::adopt_on_device(&holder.release()->managed, tensor->order());
}

Tensor slice_rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  Shape shape = tensor->shape();
  shape.at(0) = count;
  return make_view(tensor, std::move(shape), tensor->strides(), first * tensor->strides()[0]);
}

Tensor contiguous(const Tensor& tensor) { return tensor->is_contiguous() ? tensor : copy(tensor); }

Tensor copy(const Tensor& tensor) {
  const Tensor made = make_tensor(tensor->shape(), tensor->dtype());
  copy_elements(*tensor, made->data());
  return made;
}

void copy_elements(const TensorObject& tensor, char* to) noexcept {
  if (tensor.count() == 0) return;
  // Axes from `solid` on are contiguous in memory.
  std::size_t solid = tensor.rank();
  std::int64_t run = 1;
  while (solid > 0 && (tensor.shape()[solid - 1] == 1 || tensor.strides()[solid - 1] == run))
    run *= tensor.shape()[--solid];
  copy_axis(tensor, 0, solid, static_cast<std::size_t>(run) * item_size(tensor.dtype()), tensor.data(), to);
}

DLManagedTensorVersioned* export_tensor(const Tensor& tensor, std::uint64_t more_flags) {
  auto holder = make_view_holder(tensor, tensor->shape(), tensor->strides(), tensor->data());
  holder->managed.flags |= more_flags;
  return &holder.release()->managed;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::uint64_t step = 1;  // may wrap for a shape with an axis of 0, which has no elements to step over
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(shape[axis]);
  }
  return strides;
}

std::string show_shape(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

std::string show_tensor(const TensorObject& tensor) {
  return dtype_name(tensor.dtype()) + " " + show_shape(tensor.shape());
}

std::string show_device(DLDevice device) {
  const char* name = device_name(device.device_type);
  const std::string shown = name ? name : "device type " + std::to_string(device.device_type);
  return device.device_type == kDLCPU ? shown : shown + ":" + std::to_string(device.device_id);
}

DLDevice read_device(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::int32_t id = 0;
  if (colon < text.size()) {
    const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || id < 0)
      throw Error(ErrorCode::kConfig, "\"" + text + "\" is not a device; a device is cpu, cuda:0 or the like");
  }
  for (const DLDeviceType type : kNamedDevices)
    if (text.compare(0, colon, device_name(type)) == 0) return {type, id};
  throw Error(ErrorCode::kConfig, "\"" + text + "\" is not a device; a device is cpu, cuda:0 or the like");
}

bool is_cpu_memory(DLDevice device) noexcept {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost;
}

void require_cpu_memory(DLDevice device, const std::string& what) {
  if (!is_cpu_memory(device))
    throw Error(ErrorCode::kDataType, what + " is on " + show_device(device) +
                                          "; the core reads tensors in CPU memory only: put CpuTensor before it");
}

}  // namespace hami
