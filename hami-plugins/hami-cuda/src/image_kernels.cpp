// Launches the kernels of image.cu.
#include "image_kernels.hpp"

#include <algorithm>

namespace hami_cuda {
namespace {

constexpr unsigned kBlockWidth = 32;
constexpr unsigned kBlockHeight = 8;
constexpr std::size_t kMaxImages = 65535;  // the largest grid along z

unsigned blocks(int size, unsigned block) { return (static_cast<unsigned>(size) + block - 1) / block; }

}  // namespace

ImageKernels::ImageKernels(const Driver& driver, const char* ptx) {
  CUmodule loaded = nullptr;
  driver.check(driver.api().module_load(&loaded, ptx), "the driver does not take the kernels");
  const auto find = [&](CUfunction& function, const char* name) {
    driver.check(driver.api().module_function(&function, loaded, name), std::string("kernel ") + name);
  };
  find(resize_bytes_, "hami_resize_bytes");
  find(resize_normalize_, "hami_resize_normalize");
}

// The driver copies pageable memory before the call returns, so the descriptions need not live longer.
void ImageKernels::run(CUfunction kernel, const Stream& stream, const std::vector<hami_cuda_image>& images,
                       hami_cuda_resize job) {
  if (job.width < 1 || job.height < 1) return;
  const Driver& driver = stream.driver();
  for (std::size_t first = 0; first < images.size(); first += kMaxImages) {
    const std::size_t count = std::min(kMaxImages, images.size() - first);
    const std::size_t size = count * sizeof(hami_cuda_image);
    const Memory descriptions(stream, size);
    driver.check(driver.api().to_device(descriptions.start(), &images[first], size, stream.raw()),
                 "cannot copy the descriptions of images");
    CUdeviceptr start = descriptions.start();
    void* arguments[] = {&start, &job};
    driver.check(driver.api().launch(kernel, blocks(job.width, kBlockWidth), blocks(job.height, kBlockHeight),
                                     static_cast<unsigned>(count), kBlockWidth, kBlockHeight, 1, 0, stream.raw(),
                                     arguments, nullptr),
                 "cannot launch a kernel");
  }
}

}  // namespace hami_cuda
