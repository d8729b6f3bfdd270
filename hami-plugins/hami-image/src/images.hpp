// Shared by the native backends: `data` of a request as an image or a tensor, and messages as Python shows values.
#pragma once

#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>
#include <hami/elements.hpp>
#include <hami/function_table.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hami_image {

using Shape = std::vector<std::int64_t>;

inline constexpr std::string_view kData = "data";
inline constexpr std::string_view kResult = "result";
inline constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT;
inline constexpr int kMaxChannels = 4;  // of an image

// As Python shows them, for messages.
std::string show(const Shape& shape);          // "(1, 3, 224, 224)"
std::string show(double number);               // "0.1", "1e+16"
std::string show(float number);                // the fewest digits that give this float32
std::string show_text(std::string_view text);  // "'data'"
std::string show_list(const hami::Value& list);

// An image H x W x C with 1, 3 or 4 channels and at least one pixel, of uint8, uint16 or float32. Steps are in bytes.
struct Image {
  hami::Tensor tensor;  // keeps the memory
  std::int64_t height;
  std::int64_t width;
  int channels;
  std::ptrdiff_t row_step;
  std::ptrdiff_t pixel_step;
  std::ptrdiff_t channel_step;

  const char* data() const noexcept { return static_cast<const char*>(tensor.view().data); }
  DLDataType dtype() const noexcept { return tensor.dtype(); }
  // Whether a pass over uint8 can read the image row by row.
  bool is_plain() const noexcept {
    return hami::same_dtype(dtype(), hami::kUInt8) && is_packed() && pixel_step == channels;
  }

 private:
  // Whether the channels of a pixel follow each other in memory.
  bool is_packed() const noexcept {
    return channels == 1 || channel_step == static_cast<std::ptrdiff_t>(hami::item_size(dtype()));
  }
};

// `data` of a request, for the backend `taker`. Error(HAMI_REQUEST) without it.
hami::Value data_of(const hami::Dict& item, const std::string& taker);
// Error(HAMI_DATA_TYPE) for anything but an image, Error(HAMI_REQUEST) for one without pixels.
Image image_of(const hami::Value& data, const std::string& taker);
// `data` as a plain image; nothing for other images, and for anything else.
std::optional<Image> plain_image_of(const hami::Value& data);
// A tensor C x H x W or N x C x H x W of numbers, which may be empty. Error(HAMI_DATA_TYPE) for anything else.
hami::Tensor tensor_of(const hami::Value& data, const std::string& taker);

}  // namespace hami_image
