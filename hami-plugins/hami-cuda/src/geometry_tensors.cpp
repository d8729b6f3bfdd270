// LetterBoxTensor, WarpAffineTensor and CropTensor.
#include <algorithm>
#include <array>
#include <cmath>

#include "image_batch.hpp"
#include "numbers.hpp"

namespace hami_cuda {
namespace {

constexpr std::size_t kMatrixSize = 6;  // 2 x 3

// The parameters of images with a border.
class BorderedImages : public ImageBackend {
 public:
  static constexpr const char* kAbsorbs = "CvtColorTensor,NormalizeTensor";

 protected:
  using ImageBackend::ImageBackend;

  void setup(const hami::Params& params) override {
    width_ = params.get<int>("width");
    height_ = params.get<int>("height");
    const auto pad = numbers_of(params.value("pad"));
    if (!pad || pad->empty() || pad->size() > HAMI_CUDA_MAX_CHANNELS)
      throw hami::Error(HAMI_FAILED_PRECONDITION,
                        name() + ": \"pad\" must be one number for all channels, or one for each as in 0,0,255");
    pad_ = *pad;
  }

  ImagePlan bordered(const Images& images) const {
    const auto channels = static_cast<std::size_t>(images.channels);
    if (channels > HAMI_CUDA_MAX_CHANNELS || (pad_.size() != 1 && pad_.size() != channels))
      throw hami::Error(HAMI_REQUEST, name() + ": \"pad\" is for " + std::to_string(pad_.size()) +
                                          " channels, got a tensor of shape " + show(images.shape()));
    ImagePlan plan = unchanged(images);
    for (std::size_t i = 0; i < channels; ++i) {
      const double value = pad_[pad_.size() == 1 ? 0 : i];
      if (images.type == HAMI_CUDA_U8 && !(value >= 0 && value <= 255 && value == std::floor(value)))
        throw hami::Error(HAMI_REQUEST,
                          name() + ": \"pad\" must be an integer from 0 to 255 for images of uint8, got " + show(pad_));
      plan.job.pad[i] = static_cast<float>(value);
    }
    plan.width = width_;
    plan.height = height_;
    return plan;
  }

  int width_ = 0;
  int height_ = 0;

 private:
  std::vector<double> pad_;
};

class LetterBoxTensor final : public BorderedImages {
 public:
  LetterBoxTensor() : BorderedImages("LetterBoxTensor") {}

 private:
  void setup(const hami::Params& params) override {
    BorderedImages::setup(params);
    sampling_ = sampling_of(params.get<std::string>("interpolation"), params.get<bool>("antialias"), name());
  }

  std::optional<ImagePlan> plan(const hami::Dict&, const Images& images) const override {
    ImagePlan plan = bordered(images);
    const double scale = scale_of(images);
    plan.fitted_width = fitted(images.width, scale, width_);
    plan.fitted_height = fitted(images.height, scale, height_);
    plan.left = (width_ - plan.fitted_width) / 2;
    plan.top = (height_ - plan.fitted_height) / 2;
    plan.job.sampling = sampling_;
    return plan;
  }

  void finish(const hami::Dict& item, const Images& images) const override {
    const ImagePlan done = *plan(item, images);
    item["letter_box"] = hami::Value::dict({{"scale", scale_of(images)},
                                            {"left", done.left},
                                            {"top", done.top},
                                            {"image_width", images.width},
                                            {"image_height", images.height}});
  }

  double scale_of(const Images& images) const {
    return std::min(static_cast<double>(width_) / images.width, static_cast<double>(height_) / images.height);
  }

  static int fitted(int size, double scale, int limit) {
    return std::min(limit, std::max(1, static_cast<int>(std::nearbyint(size * scale))));
  }

  hami_cuda_sampling sampling_ = HAMI_CUDA_LINEAR;
};

class WarpAffineTensor final : public BorderedImages {
 public:
  WarpAffineTensor() : BorderedImages("WarpAffineTensor") {}

 private:
  void setup(const hami::Params& params) override {
    BorderedImages::setup(params);
    sampling_ = params.get<std::string>("interpolation") == "nearest" ? HAMI_CUDA_WARP_NEAREST : HAMI_CUDA_WARP_LINEAR;
    const hami::Value matrix = params.value("matrix");
    if (!matrix.is_none()) source_ = inverse(matrix, HAMI_FAILED_PRECONDITION);
  }

  std::optional<ImagePlan> plan(const hami::Dict& item, const Images& images) const override {
    ImagePlan plan = bordered(images);
    plan.job.sampling = sampling_;
    const std::optional<hami::Value> matrix = item.find("matrix");
    if (!matrix && !source_)
      throw hami::Error(HAMI_REQUEST,
                        name() +
                            ": the request has no key \"matrix\" and the parameter \"matrix\" is not set; set one "
                            "of them to the 6 numbers of a matrix 2 x 3, row by row");
    plan.source = matrix ? inverse(*matrix, HAMI_REQUEST) : *source_;
    return plan;
  }

  // The matrix that maps a point of the result to the image.
  static std::array<float, kMatrixSize> inverse(const hami::Value& value, std::int32_t code) {
    const auto numbers = numbers_of(value);
    if (!numbers || numbers->size() != kMatrixSize)
      throw hami::Error(code, "WarpAffineTensor: \"matrix\" must be the 6 numbers of a matrix 2 x 3, row by row");
    const std::vector<double>& m = *numbers;
    const double determinant = m[0] * m[4] - m[1] * m[3];
    if (determinant == 0)
      throw hami::Error(code,
                        "WarpAffineTensor: \"matrix\" maps the image to a line: it has no inverse, got " + show(m));
    const double a = m[4] / determinant;
    const double b = -m[1] / determinant;
    const double c = -m[3] / determinant;
    const double d = m[0] / determinant;
    const double inverted[kMatrixSize] = {a, b, -(a * m[2] + b * m[5]), c, d, -(c * m[2] + d * m[5])};
    std::array<float, kMatrixSize> source{};
    std::transform(inverted, inverted + kMatrixSize, source.begin(),
                   [](double number) { return static_cast<float>(number); });
    return source;
  }

  hami_cuda_sampling sampling_ = HAMI_CUDA_WARP_LINEAR;
  std::optional<std::array<float, kMatrixSize>> source_;
};

class CropTensor final : public ImageReader {
 public:
  CropTensor() : ImageReader("CropTensor") {}

 private:
  void setup(const hami::Params& params) override {
    const hami::Value box = params.value("box");
    if (box.as_list().size() > 0) box_ = read_box(box, HAMI_FAILED_PRECONDITION);
  }

  void run(hami::Batch batch) override {
    for_each(batch, [&](const hami::Dict& item) {
      const Images images = read(item, data_of(item, name()));
      const std::vector<double> box = box_of(item);
      const auto [x1, x2] = clipped(box[0], box[2], images.width);
      const auto [y1, y2] = clipped(box[1], box[3], images.height);
      if (x1 >= x2 || y1 >= y2)
        throw hami::Error(HAMI_REQUEST, "CropTensor: the box " + show(box) + " does not overlap the image, which is " +
                                            std::to_string(images.width) + " x " + std::to_string(images.height) +
                                            "; a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2");
      Images part = images;
      part.width = static_cast<int>(x2 - x1);
      part.height = static_cast<int>(y2 - y1);
      const DLTensor& view = images.tensor.view();
      item["result"] = part_view(images.tensor, y1 * images.row_stride + x1 * images.pixel_stride, part.shape(),
                                 Shape(view.strides, view.strides + view.ndim));
    });
  }

  static std::pair<std::int64_t, std::int64_t> clipped(double first, double end, int size) {
    const auto whole = [size](double place) {
      return static_cast<std::int64_t>(std::min(std::max(std::nearbyint(place), 0.0), static_cast<double>(size)));
    };
    return {whole(first), whole(end)};
  }

  std::vector<double> box_of(const hami::Dict& item) const {
    if (const std::optional<hami::Value> box = item.find("box")) return read_box(*box, HAMI_REQUEST);
    if (box_.empty())
      throw hami::Error(HAMI_REQUEST,
                        "CropTensor: the request has no key \"box\" and the parameter \"box\" is not set; set one of "
                        "them to [x1, y1, x2, y2]");
    return box_;
  }

  static std::vector<double> read_box(const hami::Value& value, std::int32_t code) {
    const auto numbers = numbers_of(value);
    if (!numbers || numbers->size() != 4)
      throw hami::Error(code, "CropTensor: \"box\" must be [x1, y1, x2, y2] in pixels");
    return *numbers;
  }

  std::vector<double> box_;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::LetterBoxTensor, "LetterBoxTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; width|resize_w: int {1..1000000} 'width of the result in pixels'"
    "; height|resize_h: int {1..1000000} 'height of the result in pixels'"
    "; interpolation: str = 'linear' {nearest,linear,cubic,area} 'interpolation method'"
    "; pad|pad_val: list = '114' 'value of the border: one for all channels, or one for each as in 0,0,255'"
    "; antialias: bool = false 'average over all source pixels when shrinking (linear and cubic only)'"
    "; fuse: bool = true 'also do the work of a CvtColorTensor and a NormalizeTensor that follow, in one launch'",
    "Resize images to fit into `width` x `height`, keep their aspect ratio, centre them and fill the rest with `pad`.\n"
    "\n"
    "LetterBoxTensor(width=640, height=640)\n"
    "\n"
    "Sets the request's key `letter_box` to {\"scale\", \"left\", \"top\"}: the point (x, y) of the result is\n"
    "((x - left) / scale, (y - top) / scale) in the image. A side that would be shorter than one pixel becomes one\n"
    "pixel. The dtype stays. `pad` is of the channels before a conversion of colors.");
HAMI_REGISTER(
    hami_cuda::WarpAffineTensor, "WarpAffineTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; width|resize_w: int {1..1000000} 'width of the result in pixels'"
    "; height|resize_h: int {1..1000000} 'height of the result in pixels'"
    "; matrix: list? 'default matrix 2 x 3, row by row, that maps a point of the image to the result'"
    "; interpolation: str = 'linear' {nearest,linear} 'interpolation method'"
    "; pad|pad_val: list = '0' 'value outside of the image: one for all channels, or one for each as in 0,0,255'"
    "; fuse: bool = true 'also do the work of a CvtColorTensor and a NormalizeTensor that follow, in one launch'",
    "Transform images with an affine matrix, as cv2.warpAffine does; places outside of the image have the value `pad`.\n"
    "\n"
    "WarpAffineTensor(width=112, height=112, matrix='0.5,0,-10,0,0.5,-20')\n"
    "\n"
    "The matrix is the request's key `matrix`, or the parameter if the request has none: (x, y) of the image becomes\n"
    "(m0 x + m1 y + m2, m3 x + m4 y + m5) of the result. The dtype stays.");
HAMI_REGISTER(
    hami_cuda::CropTensor, "CropTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; box: list = '' 'default box, [x1, y1, x2, y2] in pixels'",
    "Cut the rectangle `box` out of an image, C x H x W or N x C x H x W; the result is a view, not a copy.\n"
    "\n"
    "CropTensor(box='10,20,110,220')\n"
    "\n"
    "A box is [x1, y1, x2, y2] in pixels; x2 and y2 are the first column and row outside it. It is the "
    "request's key\n"
    "`box`, or the parameter if the request has none. It is rounded to whole pixels and clipped to the image. "
    "A box\n"
    "that does not overlap the image is an error.");
