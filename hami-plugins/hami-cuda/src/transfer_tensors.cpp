// GpuTensor and CpuTensor: copies between the CPU and the device.
#include <numeric>

#include "cuda_backend.hpp"

namespace hami_cuda {
namespace {

constexpr std::size_t kSmall =
    64 << 10;  // bytes: below, a copy to the CPU costs as much as the launch that gathers many

// The tensors of a batch, in one block.
struct Placed {
  hami::Tensor tensor;
  std::size_t offset;
};

class GpuTensor final : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;

  GpuTensor() : CudaBackend("GpuTensor") {}

 private:
  void run(hami::Batch batch) override {
    struct Request {
      hami::Dict item;
      hami::Value data;
      std::vector<std::optional<Placed>> parts;  // nullopt: it is on the device already
    };
    std::vector<Request> requests;
    Layout layout;
    for_each(batch, [&](const hami::Dict& item) {
      Request request{item, data_of(item, name()), {}};
      std::vector<hami::Tensor> found;
      map_parts(request.data, [&](const hami::Value& part) {
        found.push_back(any_tensor(part));
        return hami::Value();
      });
      for (hami::Tensor& tensor : found) request.parts.push_back(place_of(std::move(tensor), layout));
      requests.push_back(std::move(request));
    });
    if (layout.size() == 0) {
      for (const Request& request : requests) give(request.item, request.data, request.parts, nullptr);
      return;
    }
    const std::shared_ptr<Memory> memory = allocate(layout.size());
    std::vector<Upload> uploads;
    for (const Request& request : requests)
      for (const std::optional<Placed>& placed : request.parts)
        if (placed) uploads.push_back({placed->tensor, memory->start() + placed->offset});
    upload(uploads);
    for (const Request& request : requests) give(request.item, request.data, request.parts, memory);
  }

  std::optional<Placed> place_of(hami::Tensor tensor, Layout& layout) {
    const DLDevice at = tensor.device();
    if (at.device_type == kDLCUDA) {
      if (at.device_id == place().device_id) return std::nullopt;
      throw hami::Error(HAMI_DATA_TYPE,
                        name() + " copies tensors of the CPU to cuda:" + std::to_string(place().device_id) + ", got " +
                            show(tensor) + " on cuda:" + std::to_string(at.device_id) + "; put CpuTensor before it");
    }
    const std::size_t offset = layout.add(tensor.nbytes());
    return Placed{std::move(tensor), offset};
  }

  void give(const hami::Dict& item, const hami::Value& data, const std::vector<std::optional<Placed>>& parts,
            const std::shared_ptr<Memory>& memory) {
    std::size_t next = 0;
    item["result"] = map_parts(data, [&](const hami::Value& part) -> hami::Value {
      const std::optional<Placed>& placed = parts[next++];
      if (!placed) return part;
      return device_tensor(memory, placed->offset, placed->tensor.dtype(), placed->tensor.shape());
    });
  }
};

class CpuTensor final : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;

  CpuTensor() : CudaBackend("CpuTensor") {}

 private:
  struct Request {
    hami::Dict item;
    hami::Value data;
    std::vector<std::optional<Placed>> parts;  // nullopt: it is in CPU memory already
  };

  void run(hami::Batch batch) override {
    std::vector<Request> requests;
    Layout layout;
    for_each(batch, [&](const hami::Dict& item) {
      Request request{item, data_of(item, name()), {}};
      std::vector<hami::Tensor> found;
      map_parts(request.data, [&](const hami::Value& part) {
        found.push_back(any_tensor(part));
        return hami::Value();
      });
      for (hami::Tensor& tensor : found) {
        if (tensor.device().device_type != kDLCUDA) {
          request.parts.emplace_back();
          continue;
        }
        const std::size_t offset = layout.add(tensor.nbytes());
        request.parts.push_back(Placed{std::move(tensor), offset});
      }
      requests.push_back(std::move(request));
    });
    const std::shared_ptr<void> memory = layout.size() > 0 ? device().pinned().get(layout.size()) : nullptr;
    if (memory) try {
        copy(requests, static_cast<char*>(memory.get()));
      } catch (...) {
        keep(memory);  // copies to it may be in progress
        throw;
      }
    for (const Request& request : requests) {
      std::size_t next = 0;
      request.item["result"] = map_parts(request.data, [&](const hami::Value& part) -> hami::Value {
        const std::optional<Placed>& placed = request.parts[next++];
        if (!placed) return part;
        return host_tensor(memory, placed->offset, placed->tensor.dtype(), placed->tensor.shape());
      });
    }
  }

  // Small tensors are gathered on the device, and all of them copied at once.
  void copy(const std::vector<Request>& requests, char* to) {
    std::vector<const Placed*> all;
    for (const Request& request : requests)
      for (const std::optional<Placed>& placed : request.parts)
        if (placed && placed->tensor.nbytes() > 0) all.push_back(&*placed);
    std::vector<hami_cuda_copy> copies;
    std::vector<std::size_t> offsets;
    Layout layout;
    for (const Placed* placed : all) {
      const std::size_t size = placed->tensor.nbytes();
      if (placed->tensor.is_contiguous() && (all.size() == 1 || size > kSmall)) {
        copy_back(to + placed->offset, reinterpret_cast<CUdeviceptr>(placed->tensor.view().data), size);
      } else {
        copies.push_back(copy_of(placed->tensor, layout.add(size), name()));
        offsets.push_back(placed->offset);
      }
    }
    std::shared_ptr<Memory> memory;
    if (!copies.empty()) {
      std::vector<std::size_t> sizes;
      for (const hami_cuda_copy& copy : copies) sizes.push_back(static_cast<std::size_t>(copy.count * copy.size));
      memory = allocate(layout.size());
      if (std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) < layout.size()) clear(*memory, layout.size());
      move_to(copies, memory->start());
      device().kernels().copy(*stream(), copies);
      for (std::size_t first = 0, next; first < copies.size(); first = next) {  // a copy for parts that stay neighbours
        const auto from = reinterpret_cast<CUdeviceptr>(copies[first].to);
        std::size_t size = sizes[first];
        for (next = first + 1; next < copies.size(); ++next) {
          const std::size_t gap = reinterpret_cast<CUdeviceptr>(copies[next].to) - from;
          if (offsets[next] - offsets[first] != gap) break;
          size = gap + sizes[next];
        }
        copy_back(to + offsets[first], from, size);
      }
    }
    stream()->wait(waiter_);
  }

  // Zeros the gaps between the tensors, which are copied to the CPU too.
  void clear(const Memory& memory, std::size_t size) {
    stream()->driver().check(stream()->api().clear(memory.start(), 0, size, stream()->raw()), "cannot clear memory");
  }

  void copy_back(char* to, CUdeviceptr from, std::size_t size) {
    stream()->driver().check(stream()->api().to_host(to, from, size, stream()->raw()), "cannot copy from the device");
  }

  Waiter waiter_;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(hami_cuda::GpuTensor, "GpuTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
              "Copy `data`, a tensor or a list or dict of tensors, to the device; tensors that are there pass "
              "unchanged.\n"
              "\n"
              "Accepts arrays and any object with DLPack. Shape and dtype stay.");
HAMI_REGISTER(hami_cuda::CpuTensor, "CpuTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
              "Copy `data`, a tensor or a list or dict of tensors, to CPU memory; tensors that are there pass "
              "unchanged.\n"
              "\n"
              "Shape and dtype stay. The tensors of a batch are copied together, into one block of pinned memory, and "
              "the CPU\n"
              "waits once.");
HAMI_PLUGIN("hami-cuda", HAMI_CUDA_VERSION)
