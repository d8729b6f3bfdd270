// The element types of tensors: their names, their sizes, and the C++ types that compute with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

std::string dtype_name(DLDataType type);                    // "float32", "bfloat16", "float8_e4m3fn", …
std::optional<DLDataType> dtype_of(std::string_view name);  // only of one lane and whole bytes

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

}  // namespace hami
