// Pads tensors, cuts off their padding, and compares results.
#include "padding.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

namespace hami_tensor {

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
