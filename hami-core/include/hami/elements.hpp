// The element types of tensors: their names and sizes, and the C++ numbers that compute with them. Memory may be unaligned.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hami/dlpack.h"

namespace hami {

constexpr DLDataType dtype(DLDataTypeCode code, int bits) noexcept {
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
}

inline constexpr DLDataType kBool8 = dtype(kDLBool, 8);
inline constexpr DLDataType kInt8 = dtype(kDLInt, 8);
inline constexpr DLDataType kInt16 = dtype(kDLInt, 16);
inline constexpr DLDataType kInt32 = dtype(kDLInt, 32);
inline constexpr DLDataType kInt64 = dtype(kDLInt, 64);
inline constexpr DLDataType kUInt8 = dtype(kDLUInt, 8);
inline constexpr DLDataType kUInt16 = dtype(kDLUInt, 16);
inline constexpr DLDataType kUInt32 = dtype(kDLUInt, 32);
inline constexpr DLDataType kUInt64 = dtype(kDLUInt, 64);
inline constexpr DLDataType kFloat16 = dtype(kDLFloat, 16);
inline constexpr DLDataType kFloat32 = dtype(kDLFloat, 32);
inline constexpr DLDataType kFloat64 = dtype(kDLFloat, 64);
inline constexpr DLDataType kBFloat16 = dtype(kDLBfloat, 16);

constexpr bool same_dtype(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Bytes of one element.
constexpr std::size_t item_size(DLDataType type) noexcept {
  return (static_cast<std::size_t>(type.bits) * type.lanes + 7) / 8;
}

// The codes above kDLBool have one width each, which is part of the name.
struct NamedDtype {
  int code;
  int bits;
  const char* name;
};
inline constexpr NamedDtype kNamedDtypes[] = {
    {kDLFloat8_e3m4, 8, "float8_e3m4"},
    {kDLFloat8_e4m3, 8, "float8_e4m3"},
    {kDLFloat8_e4m3b11fnuz, 8, "float8_e4m3b11fnuz"},
    {kDLFloat8_e4m3fn, 8, "float8_e4m3fn"},
    {kDLFloat8_e4m3fnuz, 8, "float8_e4m3fnuz"},
    {kDLFloat8_e5m2, 8, "float8_e5m2"},
    {kDLFloat8_e5m2fnuz, 8, "float8_e5m2fnuz"},
    {kDLFloat8_e8m0fnu, 8, "float8_e8m0fnu"},
    {kDLFloat6_e2m3fn, 6, "float6_e2m3fn"},
    {kDLFloat6_e3m2fn, 6, "float6_e3m2fn"},
    {kDLFloat4_e2m1fn, 4, "float4_e2m1fn"},
    {kDLBool, 8, "bool"},
};
inline constexpr std::pair<int, const char*> kDtypeFamilies[] = {
    {kDLInt, "int"}, {kDLUInt, "uint"}, {kDLFloat, "float"}, {kDLBfloat, "bfloat"}, {kDLComplex, "complex"}};

inline std::string scalar_dtype_name(DLDataType type) {
  for (const NamedDtype& named : kNamedDtypes)
    if (named.code == type.code && named.bits == type.bits) return named.name;
  for (const auto& [code, family] : kDtypeFamilies)
    if (code == type.code) return family + std::to_string(type.bits);
  return "dtype(code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits)";
}

// "float32", "bfloat16", "float8_e4m3fn", …
inline std::string dtype_name(DLDataType type) {
  std::string name = scalar_dtype_name(type);
  if (type.lanes != 1) name += "x" + std::to_string(type.lanes);
  return name;
}

// Only of one lane and whole bytes.
inline std::optional<DLDataType> dtype_of(std::string_view name) {
  constexpr std::array kPlain = {kInt8,
                                 kInt16,
                                 kInt32,
                                 kInt64,
                                 kUInt8,
                                 kUInt16,
                                 kUInt32,
                                 kUInt64,
                                 kFloat16,
                                 kFloat32,
                                 kFloat64,
                                 kBFloat16,
                                 dtype(kDLComplex, 64),
                                 dtype(kDLComplex, 128)};
  for (DLDataType type : kPlain)
    if (scalar_dtype_name(type) == name) return type;
  for (const NamedDtype& named : kNamedDtypes)
    if (named.bits == 8 && named.name == name) return dtype(static_cast<DLDataTypeCode>(named.code), named.bits);
  return std::nullopt;
}

// The number of bits for whole numbers, without the sign; 0: unknown.
constexpr int whole_bits(DLDataType type) noexcept {
  switch (type.code) {
    case kDLBool: return 1;
    case kDLUInt: return type.bits;
    case kDLInt: return type.bits - 1;
    case kDLBfloat: return type.bits == 16 ? 8 : 0;
    case kDLFloat: return type.bits == 16 ? 11 : type.bits == 32 ? 24 : type.bits == 64 ? 53 : 0;
    default: return 0;
  }
}

// True if `to` represents every value of `from` exactly.
constexpr bool casts_safely(DLDataType from, DLDataType to) noexcept {
  if (same_dtype(from, to)) return true;
  if (from.lanes != 1 || to.lanes != 1 || whole_bits(from) == 0 || to.code == kDLBool) return false;
  if (from.code == kDLFloat || from.code == kDLBfloat) return to.code == kDLFloat && to.bits > from.bits;
  if (to.code == kDLUInt && from.code == kDLInt) return false;
  return whole_bits(from) <= whole_bits(to);
}

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
