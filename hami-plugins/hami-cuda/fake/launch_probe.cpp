// Resizes a batch on the device for test_launch.py: copies the images there, launches, and copies the results back.
#include <cstdio>
#include <memory>

#include "../src/driver.cpp"
#include "../src/image_kernels.cpp"

namespace {
using namespace hami_cuda;

void resize(const Driver& driver, const char* ptx, std::vector<hami_cuda_image> images, const hami_cuda_resize& job) {
  const Device device(driver, 0, "ResizeTensor");
  device.use();
  const ImageKernels kernels(driver, ptx);
  const Stream stream(driver);
  const std::size_t result_size = static_cast<std::size_t>(job.width) * static_cast<std::size_t>(job.height);
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<void*> results;
  for (hami_cuda_image& image : images) {
    const std::size_t size = static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.row_stride);
    const Memory& in = *memory.emplace_back(std::make_unique<Memory>(stream, size));
    driver.check(driver.api().to_device(in.start(), image.data, size, stream.raw()), "copy");
    const Memory& out = *memory.emplace_back(std::make_unique<Memory>(stream, result_size));
    results.push_back(image.result);
    image.data = reinterpret_cast<const unsigned char*>(in.start());
    image.result = reinterpret_cast<void*>(out.start());
  }
  kernels.resize(stream, images, job);
  for (std::size_t i = 0; i < images.size(); ++i)
    driver.check(driver.api().to_host(results[i], memory[2 * i + 1]->start(), result_size, stream.raw()), "copy");
  stream.wait();
}
}  // namespace

extern "C" int resize_on_device(const char* path, const char* ptx, const hami_cuda_image* images, unsigned count,
                                const hami_cuda_resize* job, char* text, std::size_t size) {
  try {
    resize(Driver(path), ptx, std::vector<hami_cuda_image>(images, images + count), *job);
    return 0;
  } catch (const CudaError& error) {
    std::snprintf(text, size, "%s", error.what());
    return error.code();
  }
}
