// The kernels of image.cu and scores.cu, loaded for one device.
#pragma once

#include <vector>

#include "../kernels/scores.h"
#include "stream.hpp"

namespace hami_cuda {

class Kernels {
 public:
  // The driver compiles the PTX of both files for the current device. The code stays loaded as long as the process.
  Kernels(const Driver& driver, const char* image, const char* scores);

  // Processes a batch of images, also when their sizes differ. The images and their results are in device memory. One launch
  // takes 40 images, and as many parts of the other kernels as its arguments can hold.
  void image(const Stream& stream, const std::vector<hami_cuda_image>& images, hami_cuda_job job) const;
  // Copies tensors with any strides, in device memory, to contiguous device memory.
  void copy(const Stream& stream, const std::vector<hami_cuda_copy>& copies) const;
  // The same, and converts the elements.
  void cast(const Stream& stream, const std::vector<hami_cuda_cast>& casts) const;
  // Work on the lines of contiguous tensors.
  void softmax(const Stream& stream, const std::vector<hami_cuda_lines>& tensors) const;
  void top(const Stream& stream, const std::vector<hami_cuda_lines>& tensors) const;
  // Non-maximum suppression of a batch of requests.
  void suppress(const Stream& stream, const std::vector<hami_cuda_boxes>& requests, hami_cuda_nms job) const;
  // Boxes of letter-boxed images as those of the pictures.
  void restore(const Stream& stream, const std::vector<hami_cuda_corners>& requests) const;

 private:
  void lines(CUfunction kernel, const Stream& stream, const std::vector<hami_cuda_lines>& tensors) const;

  CUfunction image_ = nullptr;
  CUfunction plain_image_ = nullptr;
  CUfunction copy_ = nullptr;
  CUfunction cast_ = nullptr;
  CUfunction softmax_ = nullptr;
  CUfunction top_ = nullptr;
  CUfunction suppress_ = nullptr;
  CUfunction restore_ = nullptr;
};

}  // namespace hami_cuda
