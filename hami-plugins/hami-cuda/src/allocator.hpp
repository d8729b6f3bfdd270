// Device memory in the order of streams: from the pool of the driver, or from a cache where the driver has no pools.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_api.hpp"

namespace hami_cuda {

// The device must be the current one.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Memory for work that `stream` gets from now on.
  virtual CUresult allocate(CUdeviceptr* start, std::size_t size, CUstream stream) = 0;
  // Frees memory once the work that `stream` has now is done.
  virtual void release(CUdeviceptr start, CUstream stream) noexcept = 0;
  // Whether memory that was freed in the order of a stream is reused by others.
  virtual bool is_shared_by_streams() const noexcept { return false; }
  // Returns memory that is kept for later to the device, until there are `kept` bytes in use and kept.
  virtual void trim(std::size_t kept) noexcept = 0;
};

// The default pool of the device. Above `kept` bytes, it returns freed memory whenever someone waits.
class PoolAllocator final : public Allocator {
 public:
  PoolAllocator(const CudaApi& api, CUdevice device, std::size_t kept);
  CUresult allocate(CUdeviceptr* start, std::size_t size, CUstream stream) override;
  void release(CUdeviceptr start, CUstream stream) noexcept override;
  bool is_shared_by_streams() const noexcept override { return true; }
  void trim(std::size_t kept) noexcept override;

 private:
  const CudaApi& api_;
  CUmemoryPool pool_ = nullptr;
};

// Keeps freed blocks for the same stream, whose order then needs no wait.
class CachingAllocator final : public Allocator {
 public:
  explicit CachingAllocator(const CudaApi& api) : api_(api) {}
  CUresult allocate(CUdeviceptr* start, std::size_t size, CUstream stream) override;
  void release(CUdeviceptr start, CUstream stream) noexcept override;
  void trim(std::size_t kept) noexcept override;

 private:
  using Spare = std::map<std::size_t, std::vector<CUdeviceptr>>;  // by size

  const CudaApi& api_;
  std::mutex mutex_;                         // guards what follows
  std::map<CUdeviceptr, std::size_t> used_;  // with their sizes
  std::map<CUstream, Spare> of_streams_;
  std::size_t reserved_ = 0;  // bytes in use and kept
};

}  // namespace hami_cuda
