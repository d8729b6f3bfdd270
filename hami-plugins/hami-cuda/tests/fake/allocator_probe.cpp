// Calls the caching allocator for test_allocator.py. A stream is a number; failures are codes of the driver.
#include <dlfcn.h>

#include "../../src/allocator.cpp"

using namespace hami_cuda;

namespace {

CudaApi load(const char* driver) {
  CudaApi api;
  void* const library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
#define RESOLVE(result, symbol, name, parameters) \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #symbol));
  HAMI_CUDA_FUNCTIONS(RESOLVE)
#undef RESOLVE
  return api;
}

CudaApi api;
CachingAllocator* allocator = nullptr;

CUstream stream_of(int number) { return reinterpret_cast<CUstream>(static_cast<std::size_t>(number)); }

}  // namespace

extern "C" void open(const char* driver) {
  api = load(driver);
  allocator = new CachingAllocator(api);
}
extern "C" unsigned long long allocate(std::size_t size, int stream) {
  CUdeviceptr start = 0;
  return allocator->allocate(&start, size, stream_of(stream)) == 0 ? start : 0;
}
extern "C" void release(unsigned long long start, int stream) { allocator->release(start, stream_of(stream)); }
extern "C" void trim() { allocator->trim(0); }
