// Launches the kernels of image.cu.
#include "kernels.hpp"

#include <algorithm>

namespace hami_cuda {
namespace {

constexpr unsigned kBlockWidth = 32;
constexpr unsigned kBlockHeight = 8;
constexpr unsigned kBlockSize = 256;
constexpr long long kMaxBlocks = 1024;    // of one copy; each thread then copies several elements
constexpr std::size_t kMaxParts = 65535;  // the largest grid along y and z

unsigned blocks(long long size, unsigned block) { return static_cast<unsigned>((size + block - 1) / block); }

// Calls `launch` with descriptions in device memory, of as many parts as one launch takes. The driver copies pageable
// memory before the call returns, so the descriptions need not live longer.
template <class Part, class Launch>
void for_each_launch(const std::shared_ptr<Stream>& stream, const std::vector<Part>& parts, const Launch& launch) {
  for (std::size_t first = 0; first < parts.size(); first += kMaxParts) {
    const std::size_t count = std::min(kMaxParts, parts.size() - first);
    const Memory descriptions(stream, count * sizeof(Part));
    stream->driver().check(
        stream->api().to_device(descriptions.start(), &parts[first], count * sizeof(Part), stream->raw()),
        "cannot copy the descriptions of a batch");
    const CUresult result = launch(descriptions.start(), &parts[first], static_cast<unsigned>(count));
    stream->driver().check(result, "cannot launch a kernel");
  }
}

}  // namespace

Kernels::Kernels(const Driver& driver, const char* ptx) {
  CUmodule loaded = nullptr;
  driver.check(driver.api().module_load(&loaded, ptx), "the driver does not take the kernels");
  driver.check(driver.api().module_function(&image_, loaded, "hami_image"), "kernel hami_image");
  driver.check(driver.api().module_function(&copy_, loaded, "hami_copy"), "kernel hami_copy");
}

void Kernels::image(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_image>& images,
                    hami_cuda_job job) const {
  for_each_launch(stream, images, [&](CUdeviceptr start, const hami_cuda_image* first, unsigned count) {
    int width = 1;
    int height = 1;
    for (const hami_cuda_image* image = first; image < first + count; ++image) {
      width = std::max(width, image->out_width);
      height = std::max(height, image->out_height);
    }
    void* arguments[] = {&start, &job};
    return stream->api().launch(image_, blocks(width, kBlockWidth), blocks(height, kBlockHeight), count, kBlockWidth,
                                kBlockHeight, 1, 0, stream->raw(), arguments, nullptr);
  });
}

void Kernels::copy(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_copy>& copies) const {
  for_each_launch(stream, copies, [&](CUdeviceptr start, const hami_cuda_copy* first, unsigned count) {
    long long longest = 1;
    for (const hami_cuda_copy* copy = first; copy < first + count; ++copy) longest = std::max(longest, copy->count);
    void* arguments[] = {&start};
    return stream->api().launch(copy_,
                                static_cast<unsigned>(std::min<long long>(blocks(longest, kBlockSize), kMaxBlocks)),
                                count, 1, kBlockSize, 1, 1, 0, stream->raw(), arguments, nullptr);
  });
}

}  // namespace hami_cuda
