// Launches the kernels of image.cu and scores.cu.
#include "kernels.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

namespace hami_cuda {
namespace {

constexpr unsigned kBlockWidth = 32;
// A thread takes up to 136 registers, of a plain job 62: with more threads, a processor runs fewer blocks at a time.
constexpr unsigned kBlockHeight = 4;
constexpr unsigned kBlockSize = 256;
constexpr long long kMaxBlocks = 1024;  // of one copy; each thread then copies several elements

unsigned blocks(long long size, unsigned block) { return static_cast<unsigned>((size + block - 1) / block); }

// Calls `launch` with as many parts as one launch takes, until all are launched.
template <class Part, class Launch>
void for_each_launch(const Stream& stream, const std::vector<Part>& parts, const Launch& launch) {
  using Given = hami_cuda_parts<Part>;
  for (std::size_t first = 0; first < parts.size(); first += Given::kMax) {
    const std::size_t count = std::min<std::size_t>(Given::kMax, parts.size() - first);
    Given given{};
    std::copy_n(&parts[first], count, given.part);
    stream.driver().check(launch(given, static_cast<unsigned>(count)), "cannot launch a kernel");
  }
}

// A launch in which each row of blocks has a part of `longest` elements at most.
template <class Part>
CUresult launch_rows(const Stream& stream, CUfunction kernel, hami_cuda_parts<Part>& parts, long long longest,
                     unsigned count) {
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
  load(image, {{"hami_image", &image_}, {"hami_plain_image", &plain_image_}, {"hami_copy", &copy_}});
  load(scores, {{"hami_cast", &cast_},
                {"hami_softmax", &softmax_},
                {"hami_top", &top_},
                {"hami_suppress", &suppress_},
                {"hami_restore", &restore_}});
}

void Kernels::image(const Stream& stream, const std::vector<hami_cuda_image>& images, hami_cuda_job job) const {
  const bool is_plain = job.in_type == HAMI_CUDA_U8 && job.sampling <= HAMI_CUDA_LINEAR;
  for_each_launch(stream, images, [&](hami_cuda_parts<hami_cuda_image>& given, unsigned count) {
    int width = 1;
    int height = 1;
    for (const hami_cuda_image* image = given.part; image < given.part + count; ++image) {
      width = std::max(width, image->out_width);
      height = std::max(height, image->out_height);
    }
    void* arguments[] = {&given, &job};
    return stream.api().launch(is_plain ? plain_image_ : image_, blocks(width, kBlockWidth),
                               blocks(height, kBlockHeight), count, kBlockWidth, kBlockHeight, 1, 0, stream.raw(),
                               arguments, nullptr);
  });
}

void Kernels::copy(const Stream& stream, const std::vector<hami_cuda_copy>& copies) const {
  for_each_launch(stream, copies, [&](hami_cuda_parts<hami_cuda_copy>& given, unsigned count) {
    long long longest = 1;
    for (const hami_cuda_copy* copy = given.part; copy < given.part + count; ++copy)
      longest = std::max(longest, copy->count);
    return launch_rows(stream, copy_, given, longest, count);
  });
}

void Kernels::cast(const Stream& stream, const std::vector<hami_cuda_cast>& casts) const {
  for_each_launch(stream, casts, [&](hami_cuda_parts<hami_cuda_cast>& given, unsigned count) {
    long long longest = 1;
    for (const hami_cuda_cast* cast = given.part; cast < given.part + count; ++cast)
      longest = std::max(longest, cast->copy.count);
    return launch_rows(stream, cast_, given, longest, count);
  });
}

void Kernels::lines(CUfunction kernel, const Stream& stream, const std::vector<hami_cuda_lines>& tensors) const {
  for_each_launch(stream, tensors, [&](hami_cuda_parts<hami_cuda_lines>& given, unsigned count) {
    long long most = 1;
    for (const hami_cuda_lines* tensor = given.part; tensor < given.part + count; ++tensor)
      most = std::max(most, tensor->count);
    void* arguments[] = {&given};
    return stream.api().launch(kernel, static_cast<unsigned>(std::min(most, kMaxBlocks)), count, 1,
                               HAMI_CUDA_MAX_THREADS, 1, 1, 0, stream.raw(), arguments, nullptr);
  });
}

void Kernels::softmax(const Stream& stream, const std::vector<hami_cuda_lines>& tensors) const {
  lines(softmax_, stream, tensors);
}

void Kernels::top(const Stream& stream, const std::vector<hami_cuda_lines>& tensors) const {
  lines(top_, stream, tensors);
}

void Kernels::suppress(const Stream& stream, const std::vector<hami_cuda_boxes>& requests, hami_cuda_nms job) const {
  for_each_launch(stream, requests, [&](hami_cuda_parts<hami_cuda_boxes>& given, unsigned count) {
    void* arguments[] = {&given, &job};
    return stream.api().launch(suppress_, count, 1, 1, HAMI_CUDA_MAX_THREADS, 1, 1, 0, stream.raw(), arguments,
                               nullptr);
  });
}

void Kernels::restore(const Stream& stream, const std::vector<hami_cuda_corners>& requests) const {
  for_each_launch(stream, requests, [&](hami_cuda_parts<hami_cuda_corners>& given, unsigned count) {
    long long longest = 1;
    for (const hami_cuda_corners* corners = given.part; corners < given.part + count; ++corners)
      longest = std::max(longest, corners->count);
    return launch_rows(stream, restore_, given, longest, count);
  });
}

}  // namespace hami_cuda
