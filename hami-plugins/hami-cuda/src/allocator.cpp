// Allocates from the driver's pool, or caches blocks.
#include "allocator.hpp"

#include <cstdint>

namespace hami_cuda {
namespace {

constexpr std::size_t kSmallestBlock = 512;
constexpr std::size_t kLargeStep = 2U << 20;  // larger blocks are multiples of it, smaller ones powers of two

std::size_t block_size(std::size_t size) {
  if (size > kLargeStep) return (size + kLargeStep - 1) / kLargeStep * kLargeStep;
  std::size_t block = kSmallestBlock;
  while (block < size) block *= 2;
  return block;
}

}  // namespace

// By default the pool returns freed memory to the device at each wait, and then has to get it again.
PoolAllocator::PoolAllocator(const CudaApi& api, CUdevice device, std::size_t kept) : api_(api) {
  std::uint64_t bytes = kept;
  if (api.default_pool(&pool_, device) == 0) api.set_pool_attribute(pool_, kReleaseThreshold, &bytes);
}

CUresult PoolAllocator::allocate(CUdeviceptr* start, std::size_t size, CUstream stream) {
  return api_.allocate(start, size, stream);
}

void PoolAllocator::release(CUdeviceptr start, CUstream stream) noexcept { api_.release(start, stream); }

void PoolAllocator::trim(std::size_t kept) noexcept {
  if (pool_) api_.trim_pool(pool_, kept);
}

CUresult CachingAllocator::allocate(CUdeviceptr* start, std::size_t size, CUstream stream) {
  const std::size_t block = block_size(size);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CUdeviceptr>& spare = of_streams_[stream][block];
  if (!spare.empty()) {
    *start = spare.back();
    spare.pop_back();
  } else if (const CUresult result = api_.allocate_unordered(start, block)) {
    return result;
  } else {
    reserved_ += block;
  }
  used_[*start] = block;
  return 0;
}

void CachingAllocator::release(CUdeviceptr start, CUstream stream) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = used_.find(start);
  of_streams_[stream][found->second].push_back(start);
  used_.erase(found);
}

void CachingAllocator::trim(std::size_t kept) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reserved_ <= kept || api_.context_synchronize() != 0) return;
  for (auto& [stream, spare] : of_streams_)
    for (auto& [size, blocks] : spare)
      for (; !blocks.empty() && reserved_ > kept; blocks.pop_back()) {
        api_.release_unordered(blocks.back());
        reserved_ -= size;
      }
}

}  // namespace hami_cuda
