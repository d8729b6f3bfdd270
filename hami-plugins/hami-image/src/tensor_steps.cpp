// Mat2Tensor and NormalizeTensor.
#include "tensor_steps.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "passes.hpp"

namespace hami_image {
namespace {

constexpr const char* kMat2Tensor = "Mat2Tensor";
constexpr const char* kNormalizeTensor = "NormalizeTensor";
constexpr std::string_view kDefaultMean = "0.0";
constexpr std::string_view kDefaultStd = "1.0";

bool is(DLDataType type, DLDataType other) noexcept { return hami::same_dtype(type, other); }

// Calls `function` with a number of the type of an image.
template <class Function>
void with_pixel(DLDataType type, Function&& function) {
  if (is(type, hami::kUInt8))
    function(std::uint8_t{});
  else if (is(type, hami::kUInt16))
    function(std::uint16_t{});
  else
    function(float{});
}

template <class Pixel>
Pixel load(const char* at) noexcept {
  Pixel pixel;
  std::memcpy(&pixel, at, sizeof pixel);
  return pixel;
}

// Calls `function` with each pixel value of a row of a channel, and its column.
template <class Pixel, class Function>
void for_row(const Image& image, std::int64_t y, int channel, const Function& function) {
  const char* at = image.data() + y * image.row_step + channel * image.channel_step;
  for (std::int64_t x = 0; x < image.width; ++x, at += image.pixel_step) function(load<Pixel>(at), x);
}

template <class Pixel>
std::pair<Pixel, Pixel> range_of(const Image& image) {
  Pixel low = load<Pixel>(image.data());
  Pixel high = low;
  for (std::int64_t y = 0; y < image.height; ++y)
    for (int channel = 0; channel < image.channels; ++channel)
      for_row<Pixel>(image, y, channel, [&](Pixel value, std::int64_t) {
        if (value < low || value != value) low = value;
        if (value > high || value != value) high = value;
      });
  return {low, high};
}

// A NaN stays: nothing is below or above it.
template <class Pixel>
void check_range(const Image& image, DLDataType type) {
  const bool bytes = is(type, hami::kUInt8);
  const int lowest = bytes ? 0 : -65504;  // finite values of float16
  const int highest = bytes ? 255 : 65504;
  const auto [low, high] = range_of<Pixel>(image);
  if (lowest <= low && high <= highest) return;
  const auto text = [](Pixel value) {
    if constexpr (std::is_same_v<Pixel, float>)
      return show(value);
    else
      return std::to_string(value);
  };
  throw hami::Error(HAMI_REQUEST, std::string(kMat2Tensor) + ": \"dtype\" = " + hami::dtype_name(type) +
                                      " can hold values from " + std::to_string(lowest) + " to " +
                                      std::to_string(highest) + ", but the image of " +
                                      hami::dtype_name(image.dtype()) + " has values from " + text(low) + " to " +
                                      text(high) + "; scale the image first or use float32");
}

// Writes the image to a tensor of another type, whose values are `channel_step`, `row_step` and `pixel_step` elements apart.
template <class Pixel, class Store>
void convert(const Image& image, std::int64_t channel_step, std::int64_t pixel_step, const Store& store) {
  const std::int64_t row_step = image.width * pixel_step;
  for (int channel = 0; channel < image.channels; ++channel)
    for (std::int64_t y = 0; y < image.height; ++y) {
      const std::int64_t first = channel * channel_step + y * row_step;
      for_row<Pixel>(image, y, channel, [&](Pixel value, std::int64_t x) { store(first + x * pixel_step, value); });
    }
}

template <class Pixel>
void convert(const Image& image, Layout layout, const hami::Tensor& tensor) {
  const std::int64_t channel_step = layout == Layout::kHwc ? 1 : image.height * image.width;
  const std::int64_t pixel_step = layout == Layout::kHwc ? image.channels : 1;
  void* const to = tensor.view().data;
  const auto run = [&](const auto& store) { convert<Pixel>(image, channel_step, pixel_step, store); };
  if (is(tensor.dtype(), hami::kUInt8))
    run([to](std::int64_t i, Pixel value) { static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(value); });
  else if (is(tensor.dtype(), hami::kFloat16))
    run([to](std::int64_t i, Pixel value) {
      static_cast<std::uint16_t*>(to)[i] = hami::float_to_half(static_cast<float>(value));
    });
  else
    run([to](std::int64_t i, Pixel value) { static_cast<float*>(to)[i] = static_cast<float>(value); });
}

void write_planes(const Image& image, PlaneWriter& writer) {
  const auto* row = reinterpret_cast<const std::uint8_t*>(image.data());
  for (std::int64_t y = 0; y < image.height; ++y, row += image.row_step)
    writer.write(row, static_cast<std::size_t>(image.pixel_step));
}

// Writes the tensor, in row-major order, plane by plane.
template <class From>
void normalize(const hami::Tensor& from, const Normalization& by, float* to) {
  constexpr std::size_t kSize = hami::item_size(From::kType);
  const DLTensor& view = from.view();
  const int axis = view.ndim - 3;  // of the channels
  const std::int64_t images = axis == 0 ? 1 : view.shape[0];
  const auto* const data = static_cast<const char*>(view.data);
  const std::int64_t* const steps = view.strides + axis;
  for (std::int64_t image = 0; image < images; ++image)
    for (std::int64_t channel = 0; channel < view.shape[axis]; ++channel) {
      const std::size_t at = by.factors.size() == 1 ? 0 : static_cast<std::size_t>(channel);
      const float factor = by.factors[at];
      const float offset = by.offsets[at];
      for (std::int64_t y = 0; y < view.shape[axis + 1]; ++y) {
        const std::int64_t first = (axis == 0 ? 0 : image * view.strides[0]) + channel * steps[0] + y * steps[1];
        const char* const row = data + first * static_cast<std::ptrdiff_t>(kSize);
        const std::int64_t width = view.shape[axis + 2];
        if (steps[2] == 1)  // the usual case, which compilers turn into vector instructions
          for (std::int64_t x = 0; x < width; ++x)
            to[x] = static_cast<float>(From::load(row + static_cast<std::size_t>(x) * kSize)) * factor + offset;
        else
          for (std::int64_t x = 0; x < width; ++x)
            to[x] = static_cast<float>(From::load(row + x * steps[2] * static_cast<std::ptrdiff_t>(kSize))) * factor +
                    offset;
        to += width;
      }
    }
}

}  // namespace

PlaneWriter::PlaneWriter(const hami::Tensor& tensor, int channels, const Normalization* normalization)
    : channels_(channels), width_(static_cast<std::size_t>(tensor.view().shape[tensor.rank() - 1])) {
  const std::size_t plane = tensor.count() / static_cast<std::size_t>(channels);
  for (int channel = 0; channel < channels; ++channel) {
    const std::size_t at = !normalization || normalization->factors.size() == 1 ? 0 : static_cast<std::size_t>(channel);
    planes_[channel] = static_cast<float*>(tensor.view().data) + static_cast<std::size_t>(channel) * plane;
    factors_[channel] = normalization ? normalization->factors[at] : 1;  // value * 1 + 0 is the value, bit for bit
    offsets_[channel] = normalization ? normalization->offsets[at] : 0;
  }
}

void PlaneWriter::write(const std::uint8_t* row, std::size_t step) noexcept {
  passes().split(row, step, channels_, width_, factors_, offsets_, planes_);
  for (int channel = 0; channel < channels_; ++channel) planes_[channel] += width_;
}

Shape ToTensor::shape_of(std::int64_t channels, std::int64_t height, std::int64_t width) const {
  if (layout == Layout::kHwc) return {height, width, channels};
  if (layout == Layout::kChw) return {channels, height, width};
  return {1, channels, height, width};
}

hami::Tensor ToTensor::apply(const Image& image) const {
  with_pixel(image.dtype(), [&](auto pixel) {
    using Pixel = decltype(pixel);
    if (!hami::casts_safely(hami::dtype_of<Pixel>(), dtype)) check_range<Pixel>(image, dtype);
  });
  const hami::Tensor tensor = hami::Tensor::make(dtype, shape_of(image.channels, image.height, image.width));
  if (image.is_plain() && layout != Layout::kHwc && is(dtype, hami::kFloat32)) {
    PlaneWriter writer(tensor, image.channels, nullptr);
    write_planes(image, writer);
  } else {
    with_pixel(image.dtype(), [&](auto pixel) { convert<decltype(pixel)>(image, layout, tensor); });
  }
  return tensor;
}

void Normalization::check(const Shape& shape) const {
  const auto channels = static_cast<std::size_t>(shape[shape.size() - 3]);
  if (factors.size() == 1 || factors.size() == channels) return;
  throw hami::Error(HAMI_REQUEST, std::string(kNormalizeTensor) + ": \"mean\" and \"std\" are for " +
                                      std::to_string(factors.size()) + " channels, got a tensor of shape " +
                                      show(shape));
}

hami::Tensor Normalization::apply(const hami::Tensor& tensor) const {
  check(tensor.shape());
  const hami::Tensor result = hami::Tensor::make(hami::kFloat32, tensor.shape());
  if (result.count() > 0)
    hami::with_element(tensor.dtype(), [&](auto from) {
      normalize<decltype(from)>(tensor, *this, static_cast<float*>(result.view().data));
    });
  return result;
}

std::optional<hami::Tensor> Following::planes_for(std::int64_t channels, std::int64_t height,
                                                  std::int64_t width) const {
  // NormalizeTensor always returns float32, and every type of Mat2Tensor holds the values of uint8.
  if (!to_tensor || to_tensor->layout == Layout::kHwc || (!normalization && !is(to_tensor->dtype, hami::kFloat32)))
    return std::nullopt;
  const Shape shape = to_tensor->shape_of(channels, height, width);
  if (normalization) normalization->check(shape);
  return hami::Tensor::make(hami::kFloat32, shape);
}

void Following::set(const hami::Dict& item, const hami::Tensor& tensor) const {
  item["data_format"] = hami::Value(layout);
  item[kResult] = tensor;
}

void Following::apply(const hami::Dict& item, const Image& image) const {
  if (image.is_plain()) {
    if (const std::optional<hami::Tensor> tensor = planes_for(image.channels, image.height, image.width)) {
      PlaneWriter writer(*tensor, image.channels, normalization);
      write_planes(image, writer);
      return set(item, *tensor);
    }
  }
  const hami::Tensor tensor = to_tensor->apply(image);
  set(item, normalization ? normalization->apply(tensor) : tensor);
}

namespace {

class Mat2Tensor final : public TensorStep {
 public:
  static constexpr std::uint32_t kFlags = hami_image::kFlags;
  static constexpr hami::Range kRange{1, 1};
  static constexpr const char* kAbsorbs = "NormalizeTensor";

  void add_to(Following& following) const override {
    following.to_tensor = &step_;
    following.layout = layout_;
  }

 private:
  void init_(const hami::Params& params) override {
    layout_ = params.get<std::string>("layout");
    step_.layout = layout_ == "hwc" ? Layout::kHwc : layout_ == "chw" ? Layout::kChw : Layout::kNchw;
    step_.dtype = *hami::dtype_of(params.get<std::string>("dtype"));
    add_to(following_);
  }

  void absorb_(hami::Backend& next) override { static_cast<TensorStep&>(next).add_to(following_); }

  void forward_(hami::Batch batch) override {
    for (const hami::Dict& item : batch) following_.apply(item, image_of(data_of(item, kMat2Tensor), kMat2Tensor));
  }

  std::string layout_;
  ToTensor step_;
  Following following_;
};

class NormalizeTensor final : public TensorStep {
 public:
  static constexpr std::uint32_t kFlags = hami_image::kFlags;
  static constexpr hami::Range kRange{1, 1};
  static constexpr std::uint32_t kByDevice = HAMI_EACH_REQUEST_BY_DEVICE;

  void add_to(Following& following) const override { following.normalization = &step_; }

 private:
  void init_(const hami::Params& params) override {
    const hami::Value given_mean = params.value("mean");
    const hami::Value given_std = params.value("std");
    const double scale = params.get<double>("scale");
    const std::vector<double> mean = numbers(given_mean, "mean");
    const std::vector<double> std = numbers(given_std, "std");
    if (mean.empty() || std.empty() || (mean.size() != std.size() && mean.size() != 1 && std.size() != 1))
      refuse("\"mean\" and \"std\" must have one number per channel, or one for all channels, got mean " +
             shown(given_mean) + " and std " + shown(given_std));
    if (std::find(std.begin(), std.end(), 0) != std.end())
      refuse("\"std\" is a divisor and must not contain 0, got " + shown(given_std));
    bool finite = true;
    for (std::size_t i = 0; i < std::max(mean.size(), std.size()); ++i) {
      const double divisor = std[std.size() == 1 ? 0 : i];
      step_.factors.push_back(static_cast<float>(scale / divisor));
      step_.offsets.push_back(static_cast<float>(-mean[mean.size() == 1 ? 0 : i] / divisor));
      finite = finite && std::isfinite(step_.factors.back()) && std::isfinite(step_.offsets.back());
    }
    if (!finite)
      refuse("scale / std and mean / std must be finite numbers in float32, got scale " + show(scale) + ", mean " +
             shown(given_mean) + " and std " + shown(given_std));
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw hami::Error(HAMI_FAILED_PRECONDITION, std::string(kNormalizeTensor) + ": " + why);
  }

  static std::vector<double> numbers(const hami::Value& list, const char* name) {
    std::vector<double> numbers;
    for (const hami::Value& value : list.as_list()) {
      numbers.push_back(number(value));
      if (!std::isfinite(numbers.back()))
        refuse("\"" + std::string(name) + "\" must be a list of finite numbers, got " + shown(list));
    }
    return numbers;
  }

  // NaN: not a number.
  static double number(const hami::Value& value) {
    if (value.kind() == HAMI_INT || value.kind() == HAMI_FLOAT) return value.as_float();
    if (value.kind() == HAMI_BOOL) return value.as_bool() ? 1 : 0;
    if (value.kind() != HAMI_STR) return std::numeric_limits<double>::quiet_NaN();
    const std::string text(value.as_text());
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    return text.empty() || *end ? std::numeric_limits<double>::quiet_NaN() : number;
  }

  // As it was given; a default as the number that its text stands for.
  static std::string shown(const hami::Value& list) {
    const std::vector<hami::Value> items = list.as_list();
    if (items.size() == 1 && items[0].kind() == HAMI_STR &&
        (items[0].as_text() == kDefaultMean || items[0].as_text() == kDefaultStd))
      return "[" + std::string(items[0].as_text()) + "]";
    return show_list(list);
  }

  void forward_(hami::Batch batch) override {
    for (const hami::Dict& item : batch)
      item[kResult] = step_.apply(tensor_of(data_of(item, kNormalizeTensor), kNormalizeTensor));
  }

  Normalization step_;
};

}  // namespace
}  // namespace hami_image

HAMI_REGISTER(
    hami_image::Mat2Tensor, "Mat2Tensor",
    "layout|data_format: str = 'nchw' {nchw,chw,hwc} 'order of the axes; nchw has a batch axis of length 1'"
    "; dtype: str = 'float32' {float32,float16,uint8} 'dtype of the result'"
    "; fuse: bool = true 'also do the work of a NormalizeTensor that follows, in one pass'",
    "Convert an image H x W x C to a contiguous tensor 1 x C x H x W without scaling its values.\n"
    "\n"
    "data: image H x W or H x W x C; uint8, uint16 or float32\n"
    "result: tensor 1 x C x H x W, C x H x W with `layout` = chw, or H x W x C with `layout` = hwc; gray has C = 1\n"
    "data_format: written to the request, the layout of the result\n"
    "\n"
    "An image with values that `dtype` cannot hold is an error. Conversion to uint8 drops fractions. NormalizeTensor\n"
    "scales and normalises.");
HAMI_REGISTER(
    hami_image::NormalizeTensor, "NormalizeTensor",
    "mean: list = '0.0' 'one number per channel, or one for all channels'"
    "; std: list = '1.0' 'one number per channel, or one for all channels; not 0'"
    "; scale: float = 1.0 'factor that is applied first, often 1/255'",
    "Compute (data * scale - mean) / std in float32.\n"
    "\n"
    "data: tensor C x H x W or N x C x H x W of any numeric dtype\n"
    "result: tensor of the same shape, float32\n"
    "\n"
    "For example, for images with values 0 to 255: mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225],\n"
    "scale = 0.00392157.");

HAMI_PLUGIN("image", HAMI_IMAGE_VERSION)
