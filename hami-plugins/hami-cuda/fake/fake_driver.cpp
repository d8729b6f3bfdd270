// A CUDA driver without a GPU: "device" memory is host memory and kernels run on the CPU. FAKE_CUDA_VERSION, FAKE_CUDA_DEVICES
// and FAKE_CUDA_MEMORY (bytes) in the environment describe the machine.
#include <cstdlib>
#include <cstring>
#include <map>

#include "../src/cuda_api.hpp"
#include "host_kernel.cpp"

using namespace hami_cuda;
#define FAKE extern "C" __attribute__((visibility("default"))) CUresult

namespace {

long number(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}
int devices() { return static_cast<int>(number("FAKE_CUDA_DEVICES", 1)); }

std::map<CUdeviceptr, std::size_t>& allocations() {
  static std::map<CUdeviceptr, std::size_t> sizes;
  return sizes;
}

using HostKernel = void (*)(const hami_cuda_image*, hami_cuda_resize);
int launches = 0;

}  // namespace

FAKE cuInit(unsigned) { return devices() ? 0 : kNoDevice; }
FAKE cuDriverGetVersion(int* version) { return *version = static_cast<int>(number("FAKE_CUDA_VERSION", 12040)), 0; }
FAKE cuGetErrorName(CUresult error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
FAKE cuGetErrorString(CUresult error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : "unknown error";
  return 0;
}
FAKE cuDeviceGetCount(int* count) { return *count = devices(), 0; }
FAKE cuDeviceGet(CUdevice* device, int index) { return *device = index, 0; }
FAKE cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return *context = reinterpret_cast<CUcontext>(static_cast<std::size_t>(device) + 1), 0;
}
FAKE cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
FAKE cuCtxSetCurrent(CUcontext) { return 0; }
FAKE cuModuleLoadData(CUmodule* loaded, const void*) { return *loaded = reinterpret_cast<CUmodule>(1), 0; }
FAKE cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  const HostKernel kernel = !std::strcmp(name, "hami_resize_bytes")       ? hami_resize_bytes
                            : !std::strcmp(name, "hami_resize_normalize") ? hami_resize_normalize
                                                                          : nullptr;
  *function = reinterpret_cast<CUfunction>(kernel);
  return kernel ? 0 : 500;
}
FAKE cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned, unsigned, CUstream, void** arguments, void**) {
  ++launches;
  const auto images = *static_cast<const hami_cuda_image**>(arguments[0]);
  const auto& job = *static_cast<const hami_cuda_resize*>(arguments[1]);
  blockDim = {block_x, block_y, 1};
  for (unsigned z = 0; z < grid_z; ++z)
    for (unsigned y = 0; y < grid_y * block_y; ++y)
      for (unsigned x = 0; x < grid_x * block_x; ++x) {
        blockIdx = {x / block_x, y / block_y, z};
        threadIdx = {x % block_x, y % block_y, 0};
        reinterpret_cast<HostKernel>(function)(images, job);
      }
  return 0;
}
FAKE cuStreamCreate(CUstream* stream, unsigned) { return *stream = reinterpret_cast<CUstream>(1), 0; }
FAKE cuStreamDestroy_v2(CUstream) { return 0; }
FAKE cuStreamSynchronize(CUstream) { return 0; }
FAKE cuMemAllocAsync(CUdeviceptr* memory, std::size_t size, CUstream) {
  std::size_t used = size;
  for (const auto& [start, taken] : allocations()) used += taken;
  if (used > static_cast<std::size_t>(number("FAKE_CUDA_MEMORY", 1L << 30))) return kOutOfMemory;
  *memory = reinterpret_cast<CUdeviceptr>(std::malloc(size));
  allocations()[*memory] = size;
  return 0;
}
FAKE cuMemFreeAsync(CUdeviceptr memory, CUstream) {
  if (!allocations().erase(memory)) return 1;
  std::free(reinterpret_cast<void*>(memory));
  return 0;
}
FAKE cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size, CUstream) {
  return std::memcpy(reinterpret_cast<void*>(to), from, size), 0;
}
FAKE cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size, CUstream) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), size), 0;
}

// What the tests ask the fake.
extern "C" __attribute__((visibility("default"))) int fake_launches() { return launches; }
extern "C" __attribute__((visibility("default"))) std::size_t fake_allocations() { return allocations().size(); }
