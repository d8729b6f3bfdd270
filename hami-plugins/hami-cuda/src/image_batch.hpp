// ImageBackend: the base class of the image backends. All images of a batch, also of different sizes, are one launch.
#pragma once

#include <optional>
#include <vector>

#include "cuda_backend.hpp"

namespace hami_cuda {

// The images of one request: N x C x H x W, C x H x W or, with the key `data_format` = hwc, H x W x C.
struct Images {
  hami::Tensor tensor;
  bool is_hwc = false;
  std::int64_t count = 1;
  int channels = 0;
  int height = 0;
  int width = 0;
  hami_cuda_type type = HAMI_CUDA_U8;
  // In elements.
  std::int64_t image_stride = 0;
  std::int64_t channel_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t pixel_stride = 0;
};

// The work for the images of one request.
struct ImagePlan {
  hami_cuda_job job{};
  int width = 0;
  int height = 0;
};

// A plan that changes nothing: color, size and type stay.
ImagePlan unchanged(const Images& images);

class ImageBackend : public CudaBackend {
 protected:
  using CudaBackend::CudaBackend;

 private:
  // The plan for a request; nullopt: its images pass as they are. Throws hami::Error for images that are not accepted.
  virtual std::optional<ImagePlan> plan(const hami::Dict& item, const Images& images) const = 0;
  // Called when a request has its result.
  virtual void finish(const hami::Dict&) const {}

  void run(hami::Batch batch) final;
  Images read(const hami::Dict& item, const hami::Value& data);
};

}  // namespace hami_cuda
