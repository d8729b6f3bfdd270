// Tensors in device memory. The "device" is CPU memory that is called cuda:0, so that no GPU is needed.
#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

namespace {

constexpr DLDevice kDevice{kDLCUDA, 0};
constexpr std::int64_t kStream = 4096;

struct Memory {
  std::uint8_t bytes[6] = {0, 1, 2, 3, 4, 5};
  std::int64_t shape[2] = {2, 3};
  std::vector<hami::Value> streams;  // for which the memory was ordered
  DLManagedTensorVersioned managed{};
};

hami_error* order(DLManagedTensorVersioned* tensor, std::int64_t stream) {
  return hami::guard([&] {
    if (stream == 13) throw hami::Error(HAMI_INTERNAL, "the stream is lost");
    static_cast<Memory*>(tensor->manager_ctx)->streams.emplace_back(stream);
  });
}

// A tensor [[0, 1, 2], [3, 4, 5]] in device memory.
class MakeOnDevice : public hami::Backend {
  void init_(const hami::Params&) override { set_stream(kDevice, kStream); }
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      auto* const memory = new Memory;
      memory->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
      memory->managed.manager_ctx = memory;
      memory->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Memory*>(self->manager_ctx); };
      memory->managed.dl_tensor = {memory->bytes, kDevice, 2, hami::dtype_of<std::uint8_t>(),
                                   memory->shape, nullptr, 0};
      item["result"] = hami::Tensor::adopt_on_device(&memory->managed, order);
    }
  }
};

// The device of `data`, its last element, and the stream of the instance.
class ReadOnDevice : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      const hami::Tensor tensor = hami::Tensor::on_device(item.get("data"), stream(kDevice));
      const auto* const bytes = static_cast<const std::uint8_t*>(tensor.view().data);
      std::int64_t last = 0;
      for (std::size_t axis = 0; axis < tensor.rank(); ++axis)
        last += (tensor.view().shape[axis] - 1) * tensor.view().strides[axis];
      item["result"] =
          hami::Value::list({tensor.device().device_type == kDLCUDA, std::int64_t{bytes[last]}, stream(kDevice)});
    }
  }
};

// What a plugin of ABI 1.0 gets.
class ReadOnCpu : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      DLTensor view;
      std::uint64_t flags = 0;
      const hami::Value data = item.get("data");
      const hami::Error viewed(hami::host().tensor_view(&data.raw(), &view, &flags));
      hami_value out;
      const hami::Error imported(hami::host().tensor_of(&data.raw(), &out));
      item["result"] = hami::Value::list({std::string(viewed.what()), std::string(imported.what())});
    }
  }
};

}  // namespace

HAMI_REGISTER(MakeOnDevice, TEXT(PREFIX) "MakeOnDevice", "", "Make a tensor in device memory.");
HAMI_REGISTER(ReadOnDevice, TEXT(PREFIX) "ReadOnDevice", "", "Read a tensor in device memory.");
HAMI_REGISTER(ReadOnCpu, TEXT(PREFIX) "ReadOnCpu", "", "Try to read a tensor in device memory.");
HAMI_PLUGIN("acme-device", "1")
