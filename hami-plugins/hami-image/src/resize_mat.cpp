// ResizeMat: resizes an image, and writes it as a tensor where Mat2Tensor follows.
#include "linear_resize.hpp"

namespace hami_image {
namespace {

constexpr const char* kResizeMat = "ResizeMat";
constexpr const char* kMat2TensorName = "Mat2Tensor";

// Its child, OpenCvResizeMat in Python, resizes what no pass of this plugin does: other types and methods, images whose
// pixels are not one behind the other in memory, and all images without a Mat2Tensor that follows.
class ResizeMat final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = hami_image::kFlags;
  static constexpr hami::Range kRange{1, 1};
  static constexpr std::uint32_t kMaxChildren = 1;
  static constexpr const char* kDefaultChild = "OpenCvResizeMat";
  static constexpr const char* kAbsorbs = kMat2TensorName;

 private:
  void init_(const hami::Params& params) override {
    if (children().empty())
      throw hami::Error(HAMI_UNAVAILABLE, std::string(kResizeMat) + ": the backend " + kDefaultChild +
                                              " of hami-image cannot be loaded; install hami-image again");
    height_ = params.get<std::int64_t>("height");
    width_ = params.get<std::int64_t>("width");
    is_linear_ = params.get<std::string>("interpolation") == "linear";
  }

  void absorb_(hami::Backend& next) override { static_cast<TensorStep&>(next).add_to(following_); }

  void forward_(hami::Batch batch) override {
    if (!following_.to_tensor) return children()[0].forward(batch);
    for (const hami::Dict& item : batch) {
      if (write_in_one_pass(item)) continue;
      hami_dict* const one = item.raw();
      children()[0].forward(hami::Batch(&one, 1));
      if (!item.error()) following_.apply(item, image_of(item.get(kResult), kMat2TensorName));
    }
  }

  bool write_in_one_pass(const hami::Dict& item) const {
    const std::optional<hami::Value> data = is_linear_ ? item.find(kData) : std::nullopt;
    const std::optional<Image> image = data ? plain_image_of(*data) : std::nullopt;
    if (!image) return false;
    if (image->height == height_ && image->width == width_) {
      following_.apply(item, *image);
      return true;
    }
    if (!resizes_linearly(*image, height_, width_)) return false;
    const std::optional<hami::Tensor> tensor = following_.planes_for(image->channels, height_, width_);
    if (!tensor) return false;
    PlaneWriter writer(*tensor, image->channels, following_.normalization);
    resize_linear(*image, height_, width_, writer);
    following_.set(item, *tensor);
    return true;
  }

  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  bool is_linear_ = false;
  Following following_;
};

}  // namespace
}  // namespace hami_image

HAMI_REGISTER(hami_image::ResizeMat, "ResizeMat",
              "width|resize_w: int {1..32767} 'width of the result in pixels'"
              "; height|resize_h: int {1..32767} 'height of the result in pixels'"
              "; interpolation: str = 'linear' {nearest,linear,cubic,area,lanczos} 'interpolation method'"
              "; fuse: bool = true 'also do the work of a Mat2Tensor that follows, in one pass'",
              "Resize an image to exactly `width` x `height` without keeping its aspect ratio.\n"
              "\n"
              "data: image H x W or H x W x C; uint8, uint16 or float32\n"
              "result: image height x width or height x width x C, same dtype");
