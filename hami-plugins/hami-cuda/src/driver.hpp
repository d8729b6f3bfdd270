// The CUDA driver, loaded at run time, and one of its devices.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cuda_api.hpp"

namespace hami_cuda {

// An error with a code of hami/abi.h.
class CudaError : public std::runtime_error {
 public:
  CudaError(std::int32_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  std::int32_t code() const noexcept { return code_; }

 private:
  std::int32_t code_;
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

 private:
  void resolve(void* library, const std::string& path);
  std::string reason(CUresult result) const;

  CudaApi api_;
};

// The primary context of a device, which torch and TensorRT use too.
class Device {
 public:
  // Throws HAMI_FAILED_PRECONDITION if the process does not see the device.
  Device(const Driver& driver, int index, const std::string& owner);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Makes it the device of the calling thread.
  void use() const;

 private:
  const Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace hami_cuda
