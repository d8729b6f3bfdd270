// Pads tensors, cuts off their padding, and compares results.
#include "padding.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

namespace hami_tensor {
namespace {

// None if more than the padding makes the shapes differ.
std::optional<std::int64_t> padded_axis(const hami::Tensor& alone, const hami::Tensor& other, std::int64_t own,
                                        std::int64_t length) {
  if (alone.rank() != other.rank()) return std::nullopt;
  std::int64_t found = kNoAxis;
  for (std::size_t axis = 0; axis < alone.rank(); ++axis) {
    if (alone.view().shape[axis] == other.view().shape[axis]) continue;
    if (found != kNoAxis || alone.view().shape[axis] != own || other.view().shape[axis] != length) return std::nullopt;
    found = static_cast<std::int64_t>(axis);
  }
  return found;
}

}  // namespace

hami::Tensor padded(const hami::Tensor& tensor, std::size_t axis, std::int64_t length, const std::string& value) {
  const hami::Tensor from = contiguous(tensor);
  Shape shape = from.shape();
  const auto own = static_cast<std::size_t>(shape[axis]);
  const auto blocks = static_cast<std::size_t>(std::accumulate(
      shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis), std::int64_t{1}, std::multiplies<>()));
  shape[axis] = length;
  const hami::Tensor to = hami::Tensor::make(from.dtype(), shape);
  if (to.count() == 0) return to;
  const std::size_t step = to.nbytes() / blocks / static_cast<std::size_t>(length);  // bytes of one position
  const char* in = data_of(from);
  char* out = data_of(to);
  for (std::size_t block = 0; block < blocks; ++block) {
    if (own > 0) std::memcpy(out, in, own * step);
    in += own * step;
    out += own * step;
    for (std::size_t left = (static_cast<std::size_t>(length) - own) * step; left > 0; left -= value.size()) {
      std::memcpy(out, value.data(), value.size());
      out += value.size();
    }
  }
  return to;
}

hami::Tensor cut(const hami::Tensor& tensor, std::int64_t axis, std::int64_t length) {
  Shape shape = tensor.shape();
  if (axis == kNoAxis || shape[static_cast<std::size_t>(axis)] == length) return tensor;
  shape[static_cast<std::size_t>(axis)] = length;
  return make_view(tensor, std::move(shape), strides_of(tensor));
}

std::string padding_bytes(const TensorItems& items, std::size_t index, double number, const std::string& taker) {
  const DLDataType type = items.tensors[index].dtype();
  std::string bytes(hami::item_size(type), '\0');
  if (number == 0) return bytes;
  bool fits = false;
  hami::with_element(type, [&](auto element) {
    using Element = decltype(element);
    using Number = typename Element::number;
    const bool in_range = number >= static_cast<double>(std::numeric_limits<Number>::lowest()) &&
                          number < static_cast<double>(std::numeric_limits<Number>::max());
    if (!in_range) return;
    Element::store(bytes.data(), static_cast<Number>(number));
    fits = Element::kIsFloat || static_cast<double>(Element::load(bytes.data())) == number;
  });
  if (!fits)
    throw hami::Error(HAMI_REQUEST, taker + ": " + items.name(index) + " is " + hami::dtype_name(type) +
                                        ", which the padding " + std::to_string(number) + " does not fit");
  return bytes;
}

std::optional<TensorItems> results(const hami::Dict& item, const std::string& taker) {
  const std::optional<hami::Value> result = item.find(kResult);
  if (!result || result->is_none()) return std::nullopt;
  try {
    TensorItems items = read_tensors(*result, taker);
    for (const hami::Tensor& tensor : items.tensors)
      if (tensor.device().device_type != kDLCPU) return std::nullopt;
    return items;
  } catch (const hami::Error&) {
    return std::nullopt;
  }
}

PaddedAxes compare(const TensorItems& alone, const TensorItems& with_padding, std::int64_t own, std::int64_t length,
                   double tolerance) {
  PaddedAxes found;
  for (std::size_t i = 0; i < alone.tensors.size(); ++i) {
    const hami::Tensor& expected = alone.tensors[i];
    const hami::Tensor& given = with_padding.tensors[i];
    const std::optional<std::int64_t> axis = padded_axis(expected, given, own, length);
    if (!axis) return {{}, "a result is " + show_tensor(given) + " instead of " + show_tensor(expected)};
    if (const double off = difference(expected, cut(given, *axis, own)); !(off <= tolerance))
      return {{}, "it changes a result by " + std::to_string(off) + " of its largest number"};
    found.axes.push_back(*axis);
  }
  return found;
}

double difference(const hami::Tensor& alone, const hami::Tensor& other) {
  const hami::Tensor a = contiguous(alone);
  const hami::Tensor b = contiguous(other);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (!hami::same_dtype(a.dtype(), b.dtype()) || a.shape() != b.shape()) return kInfinite;
  if (a.nbytes() == 0 || std::memcmp(data_of(a), data_of(b), a.nbytes()) == 0) return 0;
  double largest = 0;
  double off = kInfinite;
  hami::with_element(a.dtype(), [&](auto element) {
    using Element = decltype(element);
    if constexpr (Element::kIsFloat) {
      constexpr std::size_t kSize = hami::item_size(Element::kType);
      off = 0;
      for (std::size_t i = 0; i < a.count(); ++i) {
        const auto x = static_cast<double>(Element::load(data_of(a) + i * kSize));
        const auto y = static_cast<double>(Element::load(data_of(b) + i * kSize));
        if (std::isnan(x) && std::isnan(y)) continue;
        largest = std::max(largest, std::abs(x));
        const double distance = x == y ? 0 : std::abs(x - y);
        off = std::max(off, std::isnan(distance) ? kInfinite : distance);
      }
    }
  });
  return off == 0 ? 0 : off / largest;
}

}  // namespace hami_tensor
