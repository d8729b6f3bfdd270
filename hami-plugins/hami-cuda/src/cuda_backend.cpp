// Opens the device of a backend, runs its batches, and translates errors.
#include "cuda_backend.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "profiler_range.hpp"

namespace hami_cuda {
namespace {

// The index of "cuda" or "cuda:N"; of "cuda:*", the instances of a node get the devices in turn.
int device_index(const std::string& device, std::int64_t instance, const std::string& owner) {
  if (device == "cuda") return 0;
  if (device == "cuda:*")
    return static_cast<int>(std::max<std::int64_t>(0, instance) % std::max(1, Runtime::get().driver().device_count()));
  int index = 0;
  if (device.rfind("cuda:", 0) == 0) {
    const char* const end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + 5, end, index);
    if (error == std::errc() && stop == end) return index;
  }
  throw CudaError(HAMI_FAILED_PRECONDITION,
                  owner + ": \"device\" must be cuda, cuda:N or cuda:*, got \"" + device +
                      (device == "cpu" ? "\"; backends for images in CPU memory are in hami-image" : "\""));
}

// Tensors of up to so many bytes are put side by side in pinned memory and copied at once. From 300 kB on, the copies by the driver
// take less time in all (tests/gpu/measured-once.md).
constexpr std::size_t kGathered = 256U << 10;

// Copies the elements of a tensor in CPU memory in row-major order.
void gather(const DLTensor& view, int axis, const char* from, std::size_t size, char*& to) {
  if (axis == view.ndim) {
    std::memcpy(to, from, size);
    to += size;
    return;
  }
  for (std::int64_t i = 0; i < view.shape[axis]; ++i)
    gather(view, axis + 1, from + i * view.strides[axis] * static_cast<std::int64_t>(size), size, to);
}

}  // namespace

void CudaBackend::translate_errors(const std::function<void()>& body) {
  try {
    body();
  } catch (const CudaError& error) {
    const std::string text = error.what();
    std::string shown = text.rfind(name_, 0) == 0 ? text : name_ + ": " + text;
    if (error.code() == HAMI_RESOURCE_EXHAUSTED)
      shown += "; the batch failed and its memory was freed. Lower `max` or `instance_num`, or use a smaller dtype";
    hami::Error translated(error.code(), shown);
    if (error.is_final()) translated.set_final();
    throw translated;
  }
}

void CudaBackend::init_(const hami::Params& params) {
  translate_errors([&] {
    const int index = device_index(params.get<std::string>("device"), instance(), name_);
    device_ = &Runtime::get().device(index, name_);
    const CurrentDevice current(device_->device());
    if (const std::int64_t known = hami::Backend::stream(place())) {
      stream_ = device_->stream(known);
    } else {
      stream_ = device_->new_stream();
      set_stream(place(), stream_->handle());
    }
    setup(params);
  });
}

void CudaBackend::forward_(hami::Batch batch) {
  const ProfilerRange range(node(), name_);
  on_device([&] {
    try {
      run(batch);
    } catch (...) {
      hold_kept();  // copies from them may be in progress
      throw;
    }
    hold_kept();
  });
}

void CudaBackend::hold_kept() {
  if (!kept_.empty()) stream()->hold(std::make_shared<std::vector<std::shared_ptr<void>>>(std::exchange(kept_, {})));
}

hami::Tensor CudaBackend::any_tensor(const hami::Value& value) {
  try {
    hami::Tensor found = hami::Tensor::on_device(value, stream()->handle());
    const bool on_cuda = found.device().device_type == kDLCUDA;
    if (on_cuda && value.kind() == HAMI_TENSOR) return found;
    keep(found);  // its owner does not know when this stream has read it
    return on_cuda ? foreign_tensor(std::move(found), stream()) : found;
  } catch (const hami::Error& error) {
    if (error.code() != HAMI_DATA_TYPE) throw;
    throw hami::Error(HAMI_DATA_TYPE,
                      name_ + " takes a tensor, an array or another object with DLPack: " + error.what());
  }
}

void CudaBackend::upload(const std::vector<Upload>& uploads) {
  const auto is_gathered = [](const Upload& upload) {
    return upload.tensor.nbytes() <= kGathered || !upload.tensor.is_contiguous();
  };
  const auto end_of = [](const Upload& upload) { return upload.to + upload.tensor.nbytes(); };
  for (auto first = uploads.begin(), next = first; first != uploads.end(); first = next) {
    for (++next; next != uploads.end() && is_gathered(*first) && is_gathered(*next); ++next)
      if (next->to < end_of(*(next - 1)) || next->to - end_of(*(next - 1)) >= kAlignment ||
          end_of(*next) - first->to > kMostStaged)
        break;
    if (next - first == 1 && first->tensor.is_contiguous()) {
      upload_from(first->tensor.view().data, first->tensor.nbytes(), first->to);
      continue;
    }
    const std::size_t size = end_of(*(next - 1)) - first->to;
    const std::shared_ptr<void> staged = device().pinned().get(size);
    for (auto each = first; each != next; ++each) {
      const DLTensor& view = each->tensor.view();
      char* to = static_cast<char*>(staged.get()) + (each->to - first->to);
      if (each->tensor.is_contiguous())
        std::memcpy(to, view.data, each->tensor.nbytes());
      else
        gather(view, 0, static_cast<const char*>(view.data), item_size(view.dtype), to);
    }
    keep(staged);
    upload_from(staged.get(), size, first->to);
  }
}

void CudaBackend::upload_from(const void* from, std::size_t size, CUdeviceptr to) {
  if (size == 0) return;
  stream()->driver().check(stream()->api().to_device(to, from, size, stream()->raw()), "cannot copy to the device");
}

void CudaBackend::make_contiguous(std::vector<hami::Tensor>& tensors) const {
  Layout layout;
  std::vector<hami_cuda_copy> copies;
  std::vector<std::pair<hami::Tensor*, std::size_t>> copied;
  for (hami::Tensor& each : tensors) {
    if (each.is_contiguous()) continue;
    const std::size_t offset = layout.add(each.nbytes());
    copies.push_back(copy_of(each, offset, name_));
    copied.emplace_back(&each, offset);
  }
  if (copies.empty()) return;
  const std::shared_ptr<Memory> memory = allocate(layout.size());
  move_to(copies, memory->start());
  device().kernels().copy(*stream(), copies);
  for (const auto& [each, offset] : copied) *each = device_tensor(memory, offset, each->dtype(), each->shape());
}

hami::Tensor CudaBackend::tensor(const hami::Value& value) {
  hami::Tensor found = any_tensor(value);
  const DLDevice here = place();
  const DLDevice there = found.device();
  if (there.device_type == here.device_type && there.device_id == here.device_id) return found;
  const std::string expected = "cuda:" + std::to_string(here.device_id);
  const bool on_cuda = there.device_type == kDLCUDA;
  const std::string given = on_cuda ? "cuda:" + std::to_string(there.device_id) : "the CPU";
  throw hami::Error(HAMI_DATA_TYPE, name_ + " takes a tensor on " + expected + ", got " + show(found) + " on " + given +
                                        "; put GpuTensor before it" +
                                        (on_cuda ? ", or set device = \"" + given + "\"" : ""));
}

}  // namespace hami_cuda
