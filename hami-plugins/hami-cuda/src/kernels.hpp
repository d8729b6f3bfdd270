// The kernels of image.cu and scores.cu, loaded for one device.
#pragma once

#include <memory>
#include <vector>

#include "../kernels/scores.h"
#include "stream.hpp"

namespace hami_cuda {

class Kernels {
 public:
  // The driver compiles the PTX of both files for the current device. The code stays loaded as long as the process.
  Kernels(const Driver& driver, const char* image, const char* scores);

  // Processes a batch of images with one launch, also when their sizes differ. The images and their results are in
  // device memory.
  void image(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_image>& images,
             hami_cuda_job job) const;
  // Copies tensors with any strides, in device memory, to contiguous device memory, with one launch.
  void copy(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_copy>& copies) const;
  // The same, and converts the elements.
  void cast(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_cast>& casts) const;
  // Work on the lines of contiguous tensors, with one launch.
  void softmax(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_lines>& tensors) const;
  void top(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_lines>& tensors) const;
  // Non-maximum suppression of a batch of requests, with one launch.
  void suppress(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_boxes>& requests,
                hami_cuda_nms job) const;

 private:
  void lines(CUfunction kernel, const std::shared_ptr<Stream>& stream,
             const std::vector<hami_cuda_lines>& tensors) const;

  CUfunction image_ = nullptr;
  CUfunction copy_ = nullptr;
  CUfunction cast_ = nullptr;
  CUfunction softmax_ = nullptr;
  CUfunction top_ = nullptr;
  CUfunction suppress_ = nullptr;
};

}  // namespace hami_cuda
