// ImageBackend: the base class of the image backends. All images of a batch, also of different sizes, are one launch,
// which also does the steps of the backends that this one absorbed.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cuda_backend.hpp"

namespace hami_cuda {

// The images of one request: N x C x H x W, C x H x W or, with the key `data_format` = hwc, H x W x C. After the first
// step of a launch: what that step makes of them, which is not in memory.
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

  Shape shape() const;
};

// The work for the images of one request.
struct ImagePlan {
  hami_cuda_job job{};
  int width = 0;
  int height = 0;
  // As in hami_cuda_image.
  int left = 0;
  int top = 0;
  int fitted_width = 0;  // 0: `width`
  int fitted_height = 0;
  std::array<float, 6> source{};
};

// A plan that changes nothing: color, size and type stay.
ImagePlan unchanged(const Images& images);

// The sampling of the parameters `interpolation` and `antialias`. Error(HAMI_FAILED_PRECONDITION) if they do not fit.
hami_cuda_sampling sampling_of(const std::string& interpolation, bool antialias, const std::string& owner);

// The format of the three channels of an image: the request's key `color`; where that is gray or missing, `otherwise`.
std::string color_of(const hami::Dict& item, const std::string& otherwise, const std::string& owner);

class ImageReader : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;

 protected:
  using CudaBackend::CudaBackend;
  Images read(const hami::Dict& item, const hami::Value& data);
};

class ImageBackend : public ImageReader {
 protected:
  using ImageReader::ImageReader;

 private:
  // The plan for a request; nullopt: its images pass as they are. Throws hami::Error for images that are not accepted.
  virtual std::optional<ImagePlan> plan(const hami::Dict& item, const Images& images) const = 0;
  // Called when a request has its result; `images`: of the request.
  virtual void finish(const hami::Dict&, const Images&) const {}

  void absorb_(hami::Backend& next) final { steps_.push_back(&static_cast<ImageBackend&>(next)); }
  void run(hami::Batch batch) final;
  std::optional<ImagePlan> plan_steps(const hami::Dict& item, Images images) const;
  void give(const hami::Dict& item, const Images& images, const hami::Value& result) const;

  std::vector<const ImageBackend*> steps_{this};  // this one, then those that it absorbed
};

}  // namespace hami_cuda
