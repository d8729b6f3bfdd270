// The kernels of image.cu, loaded for one device.
#pragma once

#include <memory>
#include <vector>

#include "../kernels/image.h"
#include "stream.hpp"

namespace hami_cuda {

class Kernels {
 public:
  // The driver compiles the PTX for the current device. The code stays loaded as long as the process.
  Kernels(const Driver& driver, const char* ptx);

  // Processes a batch of images with one launch, also when their sizes differ. The images and their results are in
  // device memory.
  void image(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_image>& images,
             hami_cuda_job job) const;
  // Copies tensors with any strides, in device memory, to contiguous device memory, with one launch.
  void copy(const std::shared_ptr<Stream>& stream, const std::vector<hami_cuda_copy>& copies) const;

 private:
  CUfunction image_ = nullptr;
  CUfunction copy_ = nullptr;
};

}  // namespace hami_cuda
