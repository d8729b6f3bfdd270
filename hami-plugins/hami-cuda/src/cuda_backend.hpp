// CudaBackend: the base class of the backends. It opens the device, and runs a batch on the stream of its instance.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device_tensor.hpp"
#include "runtime.hpp"

namespace hami_cuda {

constexpr hami::Range kAnyNumber{1, HAMI_AUTO};  // of requests: the node learns the batch size

class CudaBackend : public hami::Backend {
 public:
  // An instance has a stream; memory and decoders belong to the device, which lends them for a batch.
  static constexpr std::uint32_t kFlags = HAMI_THREAD_SERIALIZED | HAMI_LIGHTWEIGHT | HAMI_LIGHTWEIGHT_ON_DEVICE;

 protected:
  explicit CudaBackend(std::string name) : name_(std::move(name)) {}

  const std::string& name() const noexcept { return name_; }
  OpenDevice& device() const noexcept { return *device_; }
  // The stream of the instance; inside StreamPool, one of its streams.
  const std::shared_ptr<Stream>& stream() const noexcept { return StreamScope::stream_of(stream_); }
  DLDevice place() const noexcept { return {kDLCUDA, device_->device().index()}; }

  // A tensor in CPU memory, or on the device and ordered with the stream. It is kept until the work of this batch is
  // done, if its owner does not do so. Error(HAMI_DATA_TYPE) if the value is not a tensor.
  hami::Tensor any_tensor(const hami::Value& value);
  // A tensor on the device. Error(HAMI_DATA_TYPE) with the backend that moves it, if it is elsewhere.
  hami::Tensor tensor(const hami::Value& value);
  struct Upload {
    hami::Tensor tensor;  // in CPU memory
    CUdeviceptr to;
  };
  // Copies tensors to the device, in row-major order. Small ones that are neighbors there are copied at once.
  void upload(const std::vector<Upload>& uploads);
  // Copies those that are not contiguous, with one launch.
  void make_contiguous(std::vector<hami::Tensor>& tensors) const;
  // Keeps an object until the work of this batch is done.
  template <class Object>
  void keep(Object object) {
    kept_.push_back(std::make_shared<Object>(std::move(object)));
  }
  std::shared_ptr<Memory> allocate(std::size_t size) const { return std::make_shared<Memory>(stream(), size); }
  // Runs `body` for each request. A request for which it throws hami::Error fails alone.
  template <class Body>
  static void for_each(hami::Batch batch, const Body& body) {
    for (hami::Dict& item : batch) {
      try {
        body(item);
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
  }

  virtual void setup(const hami::Params&) {}
  // Called with the device as the current one. Work that is not done when it returns is on the stream.
  virtual void run(hami::Batch batch) = 0;
  // Runs `body` with the device as the current one, and translates its errors.
  template <class Body>
  void on_device(const Body& body) {
    translate_errors([&] {
      Runtime::get();  // checks the process
      device_->device().driver().check_usable();
      const CurrentDevice current(device_->device());
      body();
    });
  }

 private:
  void init_(const hami::Params& params) final;
  void forward_(hami::Batch batch) final;
  void hold_kept();
  void upload_from(const void* from, std::size_t size, CUdeviceptr to);
  void translate_errors(const std::function<void()>& body);

  const std::string name_;
  OpenDevice* device_ = nullptr;
  std::shared_ptr<Stream> stream_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace hami_cuda
