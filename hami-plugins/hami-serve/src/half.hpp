// Half: a number of half precision (FP16), as tensors have it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace hami_serve {

struct Half {
  std::uint16_t bits;
};

constexpr int kHalfFraction = 10;           // bits
constexpr int kHalfLeast = -14;             // the exponent of the smallest normal number
constexpr std::uint16_t kHalfMax = 0x7C00;  // infinity; a NaN has more, without its sign

// The nearest one, ties to even; of a number that is too large, infinity. Rounding to float32 first could round twice.
inline Half half_of(double number) noexcept {
  const double size = std::min(std::fabs(number), 65536.0);
  const int exponent = size == 0 ? kHalfLeast : std::max(std::ilogb(size), kHalfLeast);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, kHalfFraction - exponent)));
  const int magnitude = std::min<int>(((exponent - kHalfLeast) << kHalfFraction) + steps, kHalfMax);
  return {static_cast<std::uint16_t>(magnitude | (std::signbit(number) ? 0x8000 : 0))};
}

}  // namespace hami_serve
