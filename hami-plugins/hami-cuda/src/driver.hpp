// The CUDA driver, loaded at run time, and one of its devices.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "allocator.hpp"
#include "cuda_api.hpp"

namespace hami_cuda {

// An error with a code of hami/abi.h.
class CudaError : public std::runtime_error {
 public:
  CudaError(std::int32_t code, const std::string& text, bool is_final = false)
      : std::runtime_error(text), code_(code), is_final_(is_final) {}
  std::int32_t code() const noexcept { return code_; }
  bool is_final() const noexcept { return is_final_; }  // nothing works any more in this process

 private:
  std::int32_t code_;
  bool is_final_;
};

class Driver {
 public:
  // Loads and initialises the driver. Throws HAMI_UNAVAILABLE with what is missing and what to do.
  explicit Driver(const std::string& path = "libcuda.so.1");
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const CudaApi& api() const noexcept { return api_; }
  int device_count() const;
  // Throws HAMI_RESOURCE_EXHAUSTED if the device is out of memory, else HAMI_INTERNAL. `what` starts the message.
  void check(CUresult result, const std::string& what) const;
  // Throws the error after which nothing works any more in this process, if there was one.
  void check_usable() const;

 private:
  void resolve(void* library, const std::string& path);
  std::string reason(CUresult result) const;

  CudaApi api_;
  mutable std::mutex mutex_;  // guards sticky_error_
  mutable std::string sticky_error_;
  mutable std::atomic<bool> is_usable_{true};
};

// The primary context of a device, which torch and TensorRT use too.
class Device {
 public:
  // Throws HAMI_FAILED_PRECONDITION if the process does not see the device.
  Device(const Driver& driver, int index, const std::string& owner);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const noexcept { return driver_; }
  const CudaApi& api() const noexcept { return driver_.api(); }
  int index() const noexcept { return index_; }
  CUcontext context() const noexcept { return context_; }
  // Memory for work that `stream` gets from now on. Throws HAMI_RESOURCE_EXHAUSTED. The device must be the current one.
  CUdeviceptr allocate(std::size_t size, CUstream stream) const;
  // Frees memory once the work that `stream` has now is done; beyond the share that this process keeps, it returns to
  // the device.
  void release(CUdeviceptr start, std::size_t size, CUstream stream) const noexcept;
  // Whether memory may be freed in the order of another stream than that which got it.
  bool frees_in_any_order() const noexcept { return allocator_->is_shared_by_streams(); }
  // Returns cached memory to the device, for a second try after an allocation failed.
  void trim() const noexcept { allocator_->trim(0); }
  // Returns freed memory beyond the share that this process keeps. Called after a wait, when earlier frees are done.
  void return_surplus() const noexcept;

 private:
  const Driver& driver_;
  const int index_;
  const std::size_t limit_;  // bytes; HAMI_CUDA_MEMORY_LIMIT
  std::size_t kept_ = 0;     // bytes that stay with this process when they are freed
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::unique_ptr<Allocator> allocator_;
  mutable std::atomic<std::size_t> used_{0};
  mutable std::atomic<std::size_t> peak_{0};  // of used_, since the last surplus was returned
};

// Makes a device that of the calling thread, as long as it exists.
class CurrentDevice {
 public:
  explicit CurrentDevice(const Device& device) : device_(device) {
    device.driver().check(device.api().context_push(device.context()), "cannot use the device");
  }
  ~CurrentDevice() {
    CUcontext popped = nullptr;
    device_.api().context_pop(&popped);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const Device& device_;
};

}  // namespace hami_cuda
