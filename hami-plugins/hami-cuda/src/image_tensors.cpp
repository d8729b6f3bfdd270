// ResizeTensor, CvtColorTensor and NormalizeTensor.
#include "image_batch.hpp"
#include "numbers.hpp"

namespace hami_cuda {
namespace {

class ResizeTensor final : public ImageBackend {
 public:
  static constexpr const char* kAbsorbs = "CvtColorTensor,NormalizeTensor";

  ResizeTensor() : ImageBackend("ResizeTensor") {}

 private:
  void setup(const hami::Params& params) override {
    width_ = params.get<int>("width");
    height_ = params.get<int>("height");
    const std::string interpolation = params.get<std::string>("interpolation");
    sampling_ = sampling_of(interpolation, params.get<bool>("antialias"), name());
    rounded_ = params.get<bool>("rounded");
    align_corners_ = params.get<bool>("align_corners");
    if (align_corners_ && interpolation != "linear" && interpolation != "cubic")
      throw hami::Error(HAMI_FAILED_PRECONDITION,
                        "ResizeTensor: \"align_corners\" needs interpolation linear or cubic, got " + interpolation);
  }

  std::optional<ImagePlan> plan(const hami::Dict&, const Images& images) const override {
    ImagePlan plan = unchanged(images);
    const bool same_size = images.width == width_ && images.height == height_;
    if (!rounded_) plan.job.out_type = HAMI_CUDA_F32;
    if (same_size && plan.job.out_type == images.type) return std::nullopt;
    plan.job.sampling = same_size ? HAMI_CUDA_SAME : sampling_;
    plan.job.rounded = rounded_;
    plan.job.align_corners = align_corners_;
    plan.width = width_;
    plan.height = height_;
    return plan;
  }

  int width_ = 0;
  int height_ = 0;
  hami_cuda_sampling sampling_ = HAMI_CUDA_LINEAR;
  bool rounded_ = true;
  bool align_corners_ = false;
};

class CvtColorTensor final : public ImageBackend {
 public:
  static constexpr const char* kAbsorbs = "NormalizeTensor";

  CvtColorTensor() : ImageBackend("CvtColorTensor") {}

 private:
  void setup(const hami::Params& params) override {
    color_ = params.get<std::string>("color");
    source_ = params.get<std::string>("source");
  }

  std::optional<ImagePlan> plan(const hami::Dict& item, const Images& images) const override {
    const std::string format = color_of(item, source_, name());
    if (images.channels != 1 && images.channels != 3)
      throw hami::Error(HAMI_DATA_TYPE,
                        "CvtColorTensor takes images of 1 or 3 channels, got shape " + show(images.shape()));
    ImagePlan plan = unchanged(images);
    plan.job.channels = color_ == "gray" ? 1 : 3;
    if (images.channels == 1) {
      if (color_ == "gray") return std::nullopt;
      plan.job.color = HAMI_CUDA_REPEAT;
    } else {
      if (format == color_) return std::nullopt;
      plan.job.color = color_ != "gray" ? HAMI_CUDA_REVERSE : format == "rgb" ? HAMI_CUDA_GRAY : HAMI_CUDA_GRAY_OF_BGR;
    }
    return plan;
  }

  void finish(const hami::Dict& item, const Images&) const override { item["color"] = hami::Value(color_); }

  std::string color_;
  std::string source_;
};

// (data * scale - mean) / std is data * factor + offset with factor = scale / std and offset = -mean / std.
class NormalizeTensor final : public ImageBackend {
 public:
  static constexpr const char* kForDevice = "cuda";

  NormalizeTensor() : ImageBackend("NormalizeTensor") {}

 private:
  void setup(const hami::Params& params) override {
    const std::vector<double> mean = numbers(params, "mean");
    const std::vector<double> std = numbers(params, "std");
    const double scale = params.get<double>("scale");
    if (mean.empty() || std.empty() || (mean.size() != std.size() && mean.size() != 1 && std.size() != 1))
      fail("\"mean\" and \"std\" must have one number per channel, or one for all; got " + std::to_string(mean.size()) +
           " and " + std::to_string(std.size()));
    channels_ = std::max(mean.size(), std.size());
    if (channels_ > HAMI_CUDA_MAX_CHANNELS)
      fail("\"mean\" and \"std\" have at most " + std::to_string(HAMI_CUDA_MAX_CHANNELS) + " numbers, got " +
           std::to_string(channels_));
    for (std::size_t i = 0; i < HAMI_CUDA_MAX_CHANNELS; ++i) {
      const double divisor = std[i < std.size() ? i : 0];
      if (divisor == 0) fail("\"std\" is a divisor and must not contain 0");
      factor_[i] = static_cast<float>(scale / divisor);
      offset_[i] = static_cast<float>(-mean[i < mean.size() ? i : 0] / divisor);
    }
    const std::string type = params.get<std::string>("dtype");
    type_ = type == "float16" ? HAMI_CUDA_F16 : type == "bfloat16" ? HAMI_CUDA_BF16 : HAMI_CUDA_F32;
  }

  [[noreturn]] static void fail(const std::string& why) {
    throw hami::Error(HAMI_FAILED_PRECONDITION, "NormalizeTensor: " + why);
  }

  static std::vector<double> numbers(const hami::Params& params, const std::string& name) {
    if (const auto found = numbers_of(params.value(name))) return *found;
    fail("\"" + name + "\" must be a list of numbers");
  }

  std::optional<ImagePlan> plan(const hami::Dict&, const Images& images) const override {
    const auto channels = static_cast<std::size_t>(images.channels);
    if ((channels_ != 1 && channels_ != channels) || channels > HAMI_CUDA_MAX_CHANNELS)
      throw hami::Error(HAMI_REQUEST, "NormalizeTensor: \"mean\" and \"std\" are for " + std::to_string(channels_) +
                                          " channels, got a tensor of shape " + show(images.shape()));
    ImagePlan plan = unchanged(images);
    plan.job.out_type = type_;
    plan.job.normalize = 1;
    for (std::size_t i = 0; i < channels; ++i) {
      plan.job.factor[i] = factor_[i];
      plan.job.offset[i] = offset_[i];
    }
    return plan;
  }

  std::size_t channels_ = 1;
  float factor_[HAMI_CUDA_MAX_CHANNELS] = {};
  float offset_[HAMI_CUDA_MAX_CHANNELS] = {};
  hami_cuda_type type_ = HAMI_CUDA_F32;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::ResizeTensor, "ResizeTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; width|resize_w: int {1..1000000} 'width of the result in pixels'"
    "; height|resize_h: int {1..1000000} 'height of the result in pixels'"
    "; interpolation: str = 'linear' {nearest,linear,cubic,area} 'interpolation method'"
    "; rounded: bool = true 'convert the result to the dtype of the image; false: leave it float32'"
    "; antialias: bool = false 'average over all source pixels when shrinking (linear and cubic only)'"
    "; align_corners: bool = false 'map the centres of the corner pixels onto each other (linear and cubic only)'"
    "; fuse: bool = true 'also do the work of a CvtColorTensor and a NormalizeTensor that follow, in one launch'",
    "Resize images, C x H x W or N x C x H x W, to `width` x `height` pixels; the aspect ratio is not kept.\n"
    "\n"
    "ResizeTensor(width=224, height=224)\n"
    "\n"
    "Computes in float32; the result has the dtype of the image. Set `rounded = false` in front of "
    "NormalizeTensor:\n"
    "the result stays float32, which saves a conversion.");
HAMI_REGISTER(hami_cuda::CvtColorTensor, "CvtColorTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
              "; color: str {rgb,bgr,gray} 'format of the result'"
              "; source: str = 'rgb' {rgb,bgr} 'format of images of three channels without a `color` key'"
              "; fuse: bool = true 'also do the work of a NormalizeTensor that follows, in one launch'",
              "Convert images, C x H x W or N x C x H x W with C = 1 or 3, to the color format `color`.\n"
              "\n"
              "CvtColorTensor(color=bgr)\n"
              "\n"
              "An image of one channel is gray. The format of an image of three channels is the request's key `color`, "
              "which\n"
              "DecodeTensor and this backend set, or `source`. The dtype stays. Gray is 0.299 R + 0.587 G + 0.114 B "
              "(ITU-R BT.601).");
HAMI_REGISTER(hami_cuda::NormalizeTensor, "NormalizeTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
              "; mean: list = '0' 'one number per channel, or one for all; subtracted after scaling'"
              "; std: list = '1' 'one number per channel, or one for all; divides, must not be 0'"
              "; scale: float = 1 'factor that is applied first, often 1/255'"
              "; dtype: str = 'float32' {float32,float16,bfloat16} 'dtype of the result'",
              "Normalize images: (data * scale - mean) / std per channel.\n"
              "\n"
              "NormalizeTensor(mean='0.485,0.456,0.406', std='0.229,0.224,0.225', scale=0.00392157)\n"
              "\n"
              "`mean` and `std` have one value for each channel, or one for all. Computes in float32; the result has "
              "the shape of\n"
              "the image and the dtype `dtype`.");
