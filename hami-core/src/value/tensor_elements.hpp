// Tensor elements as numbers: which type computes, and how to read and write one. Memory may be unaligned.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "value/tensor_type.hpp"

namespace hami {

inline float float_of_bits(std::uint32_t bits) noexcept {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}
inline std::uint32_t bits_of_float(float number) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

inline float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

// To the nearest, ties to even.
inline std::uint16_t float_to_half(float number) noexcept {
  const std::uint32_t bits = bits_of_float(number);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u)
    half = 0x7e00u;  // NaN
  else if (magnitude >= 0x477ff000u)
    half = 0x7c00u;  // from 65520 on: infinity
  else if (magnitude >= 0x38800000u)
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  else
    half = static_cast<std::uint32_t>(std::nearbyint(float_of_bits(magnitude) * 0x1p24f));  // below 2^-14: subnormal
  return static_cast<std::uint16_t>(sign | half);
}

inline float bfloat_to_float(std::uint16_t number) noexcept { return float_of_bits(std::uint32_t{number} << 16); }

inline std::uint16_t float_to_bfloat(float number) noexcept {
  const std::uint32_t bits = bits_of_float(number);
  if (std::isnan(number)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Stored: the type in memory. Number: the type that computes, at least as wide.
template <class Stored, class Number, DLDataTypeCode code>
struct Element {
  using number = Number;
  static constexpr DLDataType kType = dtype(code, 8 * sizeof(Stored));
  static constexpr bool kIsFloat = code == kDLFloat || code == kDLBfloat;
  static constexpr bool kIsHalf = kIsFloat && sizeof(Stored) == 2;

  static Number load(const char* at) noexcept {
    Stored stored;
    std::memcpy(&stored, at, sizeof stored);
    if constexpr (!kIsHalf)
      return static_cast<Number>(stored);
    else if constexpr (code == kDLFloat)
      return half_to_float(stored);
    else
      return bfloat_to_float(stored);
  }
  static void store(char* at, Number number) noexcept {
    Stored stored;
    if constexpr (!kIsHalf)
      stored = static_cast<Stored>(number);
    else if constexpr (code == kDLFloat)
      stored = float_to_half(number);
    else
      stored = float_to_bfloat(number);
    std::memcpy(at, &stored, sizeof stored);
  }
};

// Calls `function` with the Element of a real type; false for other types (complex, float8, vectors, …).
template <class Function>
bool with_element(DLDataType type, Function&& function) {
  const auto is = [&](DLDataType one) { return same_dtype(type, one); };
  if (is(kFloat32))
    function(Element<float, float, kDLFloat>{});
  else if (is(kFloat64))
    function(Element<double, double, kDLFloat>{});
  else if (is(kFloat16))
    function(Element<std::uint16_t, float, kDLFloat>{});
  else if (is(kBFloat16))
    function(Element<std::uint16_t, float, kDLBfloat>{});
  else if (is(kInt8))
    function(Element<std::int8_t, std::int64_t, kDLInt>{});
  else if (is(kInt16))
    function(Element<std::int16_t, std::int64_t, kDLInt>{});
  else if (is(kInt32))
    function(Element<std::int32_t, std::int64_t, kDLInt>{});
  else if (is(kInt64))
    function(Element<std::int64_t, std::int64_t, kDLInt>{});
  else if (is(kUInt8))
    function(Element<std::uint8_t, std::uint64_t, kDLUInt>{});
  else if (is(kUInt16))
    function(Element<std::uint16_t, std::uint64_t, kDLUInt>{});
  else if (is(kUInt32))
    function(Element<std::uint32_t, std::uint64_t, kDLUInt>{});
  else if (is(kUInt64))
    function(Element<std::uint64_t, std::uint64_t, kDLUInt>{});
  else if (is(kBool8))
    function(Element<std::uint8_t, std::uint64_t, kDLBool>{});
  else
    return false;
  return true;
}

}  // namespace hami
