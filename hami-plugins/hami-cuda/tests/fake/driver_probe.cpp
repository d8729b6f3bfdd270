// Opens a driver and a device for test_driver.py: returns a code of hami/abi.h, and the text of the error.
#include <cstdio>

#include "../../src/allocator.cpp"
#include "../../src/driver.cpp"

extern "C" int probe(const char* path, int index, std::size_t bytes, char* text, std::size_t size) {
  try {
    const hami_cuda::Driver driver(path);
    const hami_cuda::Device device(driver, index, "GpuTensor");
    const hami_cuda::CurrentDevice current(device);
    const hami_cuda::CUdeviceptr memory = device.allocate(bytes, nullptr);
    device.release(memory, bytes, nullptr);
    return 0;
  } catch (const hami_cuda::CudaError& error) {
    std::snprintf(text, size, "%s", error.what());
    return error.code();
  }
}
