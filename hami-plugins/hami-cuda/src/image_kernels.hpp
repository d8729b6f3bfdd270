// The kernels of image.cu, loaded for the current device.
#pragma once

#include <vector>

#include "../kernels/image.h"
#include "stream.hpp"

namespace hami_cuda {

class ImageKernels {
 public:
  // Compiles the PTX for the current device. It stays loaded as long as the process.
  ImageKernels(const Driver& driver, const char* ptx);

  // Resizes a batch with one launch. The images, and their results, are in device memory.
  void resize(const Stream& stream, const std::vector<hami_cuda_image>& images, const hami_cuda_resize& job) const {
    run(resize_bytes_, stream, images, job);
  }
  // Resizes and normalizes a batch with one launch.
  void resize_normalize(const Stream& stream, const std::vector<hami_cuda_image>& images,
                        const hami_cuda_resize& job) const {
    run(resize_normalize_, stream, images, job);
  }

 private:
  static void run(CUfunction kernel, const Stream& stream, const std::vector<hami_cuda_image>& images,
                  hami_cuda_resize job);

  CUfunction resize_bytes_ = nullptr;
  CUfunction resize_normalize_ = nullptr;
};

}  // namespace hami_cuda
