// The work of Mat2Tensor and of NormalizeTensor, by itself and as a part of the work of a backend that absorbed them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "images.hpp"

namespace hami_image {

enum class Layout { kNchw, kChw, kHwc };

struct ToTensor {
  Layout layout = Layout::kNchw;
  DLDataType dtype = hami::kFloat32;

  // The shape of the tensor of an image.
  Shape shape_of(std::int64_t channels, std::int64_t height, std::int64_t width) const;
  // Error(HAMI_REQUEST) if the image has values that `dtype` cannot hold.
  hami::Tensor apply(const Image& image) const;
};

// (data * scale - mean) / std is data * factor + offset.
struct Normalization {
  std::vector<float> factors;  // one for each channel, or one for all
  std::vector<float> offsets;

  // Error(HAMI_REQUEST) if a tensor of that shape has another number of channels.
  void check(const Shape& shape) const;
  hami::Tensor apply(const hami::Tensor& tensor) const;
};

// The backends that follow another one and that it absorbed.
struct Following {
  const ToTensor* to_tensor = nullptr;
  std::string layout;  // the value of `data_format`
  const Normalization* normalization = nullptr;

  // The result for an image of that size as float32, uninitialised, if a pass over uint8 can write it row by row.
  std::optional<hami::Tensor> planes_for(std::int64_t channels, std::int64_t height, std::int64_t width) const;
  // Sets `data_format` and `result` of the request.
  void set(const hami::Dict& item, const hami::Tensor& tensor) const;
  // Sets the result of all for an image.
  void apply(const hami::Dict& item, const Image& image) const;
};

// The backends, for another one that absorbs them.
class TensorStep : public hami::Backend {
 public:
  virtual void add_to(Following& following) const = 0;
};

// Where a pass writes the rows of a tensor of planes, and what it computes.
struct PlaneWriter {
  PlaneWriter(const hami::Tensor& tensor, int channels, const Normalization* normalization);
  // Writes row after row.
  void write(const std::uint8_t* row, std::size_t step) noexcept;

 private:
  int channels_;
  std::size_t width_;
  float* planes_[kMaxChannels];
  float factors_[kMaxChannels];
  float offsets_[kMaxChannels];
};

}  // namespace hami_image
