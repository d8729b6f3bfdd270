// Reads images and tensors from requests, and writes messages about them.
#include "images.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hami_image {
namespace {

// Python writes numbers from 1e-4 up to 1e16 without an exponent.
constexpr int kLeastExponent = -4;
constexpr int kMostExponent = 16;
constexpr int kMaxDigits = 17;  // enough for every double

template <class Number>
std::string show_number(Number number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  const auto value = static_cast<double>(number);
  char text[400];
  for (int digits = 1; digits <= kMaxDigits; ++digits) {
    std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
    if (static_cast<Number>(std::strtod(text, nullptr)) != number) continue;
    const int exponent = std::atoi(std::strchr(text, 'e') + 1);
    if (exponent < kLeastExponent || exponent >= kMostExponent) return text;
    std::snprintf(text, sizeof text, "%.*f", std::max(digits - 1 - exponent, 1), value);
    return text;
  }
  return text;
}

// The text behind the last dot of a name of a type.
std::string last_name(std::string_view name) { return std::string(name.substr(name.rfind('.') + 1)); }

// Why `data` cannot be read as a tensor, from the message of the core.
std::string given(const hami::Value& data, std::string_view message) {
  constexpr std::string_view kOtherType = "expected a tensor, got ";
  constexpr std::string_view kNotImported = " cannot be imported as a tensor: ";
  if (data.is_none()) return "NoneType";
  if (message.substr(0, kOtherType.size()) == kOtherType) return last_name(message.substr(kOtherType.size()));
  const std::size_t at = message.find(kNotImported);
  if (message.substr(0, 4) != "the " || at == std::string_view::npos)
    return "an object that cannot be read through DLPack: " + std::string(message);
  return "a " + last_name(message.substr(4, at - 4)) +
         " that cannot be read through DLPack: " + std::string(message.substr(at + kNotImported.size()));
}

hami::Tensor read(const hami::Value& data, const std::string& expected) {
  try {
    return data.as_tensor();
  } catch (const hami::Error& error) {
    if (error.code() != HAMI_DATA_TYPE) throw;
    throw hami::Error(HAMI_DATA_TYPE, expected + ", got " + given(data, error.what()));
  }
}

}  // namespace

std::string show(const Shape& shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string show(double number) { return show_number(number); }
std::string show(float number) { return show_number(number); }

std::string show_text(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string shown(1, quote);
  for (const char letter : text) {
    if (letter == quote || letter == '\\') shown += '\\';
    shown += letter;
  }
  return shown + quote;
}

std::string show_list(const hami::Value& list) {
  std::string text;
  for (const hami::Value& item : list.as_list()) {
    text += text.empty() ? "" : ", ";
    switch (item.kind()) {
      case HAMI_STR: text += show_text(item.as_text()); break;
      case HAMI_BOOL: text += item.as_bool() ? "True" : "False"; break;
      case HAMI_INT: text += std::to_string(item.as_int()); break;
      case HAMI_FLOAT: text += show(item.as_float()); break;
      case HAMI_NONE: text += "None"; break;
      default: text += "…";
    }
  }
  return "[" + text + "]";
}

hami::Value data_of(const hami::Dict& item, const std::string& taker) {
  if (std::optional<hami::Value> data = item.find(kData)) return *std::move(data);
  std::vector<std::string> keys = item.keys();
  std::sort(keys.begin(), keys.end());
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "" : ", ") + show_text(key);
  throw hami::Error(HAMI_REQUEST, taker + ": the request has no key \"data\"; its keys are [" + text + "]");
}

Image image_of(const hami::Value& data, const std::string& taker) {
  const hami::Tensor tensor =
      read(data, taker + ": \"data\" must be an image (array H x W or H x W x C, as DecodeMat returns)");
  const DLTensor& view = tensor.view();
  const std::size_t rank = tensor.rank();
  const std::int64_t channels = rank == 3 ? view.shape[2] : 1;
  if ((rank != 2 && rank != 3) || (channels != 1 && channels != 3 && channels != kMaxChannels))
    throw hami::Error(HAMI_DATA_TYPE, taker +
                                          ": \"data\" must be an image (array H x W, or H x W x C with 1, 3 or 4 "
                                          "channels), got an array of shape " +
                                          show(tensor.shape()));
  const DLDataType type = tensor.dtype();
  const auto is = [&](DLDataType one) { return hami::same_dtype(type, one); };
  if (!is(hami::kUInt8) && !is(hami::kUInt16) && !is(hami::kFloat32))
    throw hami::Error(HAMI_DATA_TYPE, taker + ": the image must be uint8, uint16 or float32, got " +
                                          hami::dtype_name(type) + "; convert it with .astype()");
  if (tensor.count() == 0)
    throw hami::Error(HAMI_REQUEST, taker + ": the image is empty, its shape is " + show(tensor.shape()));
  const auto size = static_cast<std::ptrdiff_t>(hami::item_size(type));
  return {tensor,
          view.shape[0],
          view.shape[1],
          static_cast<int>(channels),
          view.strides[0] * size,
          view.strides[1] * size,
          rank == 3 ? view.strides[2] * size : size};
}

std::optional<Image> plain_image_of(const hami::Value& data) {
  try {
    Image image = image_of(data, "");
    if (image.is_plain()) return image;
  } catch (const hami::Error&) {
  }
  return std::nullopt;
}

hami::Tensor tensor_of(const hami::Value& data, const std::string& taker) {
  const std::string expected = taker + ": \"data\" must be a tensor (array C x H x W or N x C x H x W)";
  hami::Tensor tensor = read(data, expected);
  if (tensor.rank() != 3 && tensor.rank() != 4)
    throw hami::Error(HAMI_DATA_TYPE, expected + ", got an array of shape " + show(tensor.shape()));
  const DLDataType type = tensor.dtype();
  if (type.code == kDLBool || !hami::with_element(type, [](auto) {}))
    throw hami::Error(HAMI_DATA_TYPE, taker + ": the tensor must have a numeric dtype, got " + hami::dtype_name(type));
  return tensor;
}

}  // namespace hami_image
