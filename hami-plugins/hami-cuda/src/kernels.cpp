// Launches the kernels of image.cu and scores.cu.
#include "kernels.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

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

// A launch in which each row of blocks has a part of `longest` elements at most.
CUresult launch_rows(const Stream& stream, CUfunction kernel, CUdeviceptr parts, long long longest, unsigned count) {
  void* arguments[] = {&parts};
  const long long columns = std::min<long long>(blocks(longest, kBlockSize), kMaxBlocks);
  return stream.api().launch(kernel, static_cast<unsigned>(columns), count, 1, kBlockSize, 1, 1, 0, stream.raw(),
                             arguments, nullptr);
}

}  // namespace

Kernels::Kernels(const Driver& driver, const char* image, const char* scores) {
  const auto load = [&](const char* ptx, std::initializer_list<std::pair<const char*, CUfunction*>> functions) {
    CUmodule loaded = nullptr;
    driver.check(driver.api().module_load(&loaded, ptx), "the driver does not take the kernels");
    for (const auto& [name, function] : functions)
      driver.check(driver.api().module_function(function, loaded, name), std::string("kernel ") + name);
  };
  load(image, {{"hami_image", &image_}, {"hami_copy", &copy_}});
  load(scores,
       {{"hami_cast", &cast_}, {"hami_softmax", &softmax_}, {"hami_top", &top_}, {"hami_suppress", &suppress_}});
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
    return launch_rows(*stream, copy_, start, longest, count);
  });
}

void Kernels::cast(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_cast>& casts) const {
  for_each_launch(stream, casts, [&](CUdeviceptr start, const hami_cuda_cast* first, unsigned count) {
    long long longest = 1;
    for (const hami_cuda_cast* cast = first; cast < first + count; ++cast)
      longest = std::max(longest, cast->copy.count);
    return launch_rows(*stream, cast_, start, longest, count);
  });
}

void Kernels::lines(CUfunction kernel, const std::shared_ptr<Stream>& stream,
                    const std::vector<hami_cuda_lines>& tensors) const {
  for_each_launch(stream, tensors, [&](CUdeviceptr start, const hami_cuda_lines* first, unsigned count) {
    long long most = 1;
    for (const hami_cuda_lines* tensor = first; tensor < first + count; ++tensor) most = std::max(most, tensor->count);
    void* arguments[] = {&start};
    return stream->api().launch(kernel, static_cast<unsigned>(std::min(most, kMaxBlocks)), count, 1,
                                HAMI_CUDA_MAX_THREADS, 1, 1, 0, stream->raw(), arguments, nullptr);
  });
}

void Kernels::softmax(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_lines>& tensors) const {
  lines(softmax_, stream, tensors);
}

void Kernels::top(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_lines>& tensors) const {
  lines(top_, stream, tensors);
}

void Kernels::suppress(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_boxes>& requests,
                       hami_cuda_nms job) const {
  for_each_launch(stream, requests, [&](CUdeviceptr start, const hami_cuda_boxes*, unsigned count) {
    void* arguments[] = {&start, &job};
    return stream->api().launch(suppress_, count, 1, 1, HAMI_CUDA_MAX_THREADS, 1, 1, 0, stream->raw(), arguments,
                                nullptr);
  });
}

}  // namespace hami_cuda
