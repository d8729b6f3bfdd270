// The table of element types and the converting copy.
#include "element_types.hpp"

#include <cstring>
#include <limits>
#include <type_traits>

namespace hami_openvino {
namespace {

struct Float16 {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

float to_float(Bfloat16 value) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

float to_float(Float16 value) noexcept {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  std::uint32_t fraction = (value.bits & 0x3ffu) << 13;
  std::uint32_t bits = sign;
  if (exponent == 0x1f) {
    bits |= 0x7f800000u | fraction;  // infinity or NaN
  } else if (exponent != 0) {
    bits |= ((exponent + 112) << 23) | fraction;
  } else if (fraction != 0) {  // subnormal: normalize it, float32 has enough exponents
    exponent = 113;
    while ((fraction & 0x800000u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    bits |= (exponent << 23) | (fraction & 0x7fffffu);
  }
  float result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Converts an integer of at most 8 bits. These are exact in both half types, and none is subnormal.
template <class Half>
Half small_integer_to_half(float value) noexcept {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::is_same_v<Half, Bfloat16> || value == 0) return {static_cast<std::uint16_t>(bits >> 16)};
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | ((bits >> 13 & 0x3ffffu) - (112u << 10)))};
}

template <class T>
constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <class From, class To>
constexpr bool is_lossless() {
  if constexpr (std::is_same_v<From, To>) {
    return true;
  } else if constexpr (std::is_same_v<To, bool>) {
    return false;
  } else if constexpr (is_half<To>) {
    return std::is_integral_v<From> && sizeof(From) == 1;
  } else if constexpr (is_half<From>) {
    return std::is_floating_point_v<To>;
  } else {
    constexpr bool compatible_kinds = std::is_floating_point_v<To> ||
                                      (std::is_integral_v<From> && (std::is_signed_v<To> || std::is_unsigned_v<From>));
    return compatible_kinds && std::numeric_limits<From>::digits <= std::numeric_limits<To>::digits;
  }
}

template <class From, class To>
To convert(From value) noexcept {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else if constexpr (is_half<To> && std::is_integral_v<From>)
    return small_integer_to_half<To>(static_cast<float>(value));
  else if constexpr (is_half<From>)
    return static_cast<To>(to_float(value));
  else
    return static_cast<To>(value);
}

template <class T>
T from_float(float value) noexcept {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return {static_cast<std::uint16_t>(bits >> 16)};
  } else if constexpr (std::is_same_v<T, Float16>) {  // truncates; subnormal numbers become 0, large ones the largest
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t sign = bits >> 16 & 0x8000u, exponent = bits >> 23 & 0xffu;
    if (exponent < 113) return {static_cast<std::uint16_t>(sign)};
    if (exponent > 142) return {static_cast<std::uint16_t>(sign | 0x7bffu)};
    return {static_cast<std::uint16_t>(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ffu))};
  } else {
    return static_cast<T>(value);
  }
}

// The caller's memory may be unaligned.
template <class T>
T load(const unsigned char* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class From, class To>
To* copy_axes(const unsigned char* from, To* to, const std::int64_t* shape, const std::int64_t* strides,
              std::size_t axes) {
  if (axes == 0) {
    *to = convert<From, To>(load<From>(from));
    return to + 1;
  }
  const std::int64_t step = *strides * static_cast<std::int64_t>(sizeof(From));
  if (axes > 1) {
    for (std::int64_t i = 0; i < *shape; ++i)
      to = copy_axes<From>(from + i * step, to, shape + 1, strides + 1, axes - 1);
    return to;
  }
  for (std::int64_t i = 0; i < *shape; ++i) *to++ = convert<From, To>(load<From>(from + i * step));
  return to;
}

// Calls `use` with a value of the C++ type of `dtype`, if `dtype` is supported.
template <class Use>
void visit_type(DLDataType dtype, Use use) {
  if (!find_element_type(dtype)) return;
  switch (dtype.code << 8 | dtype.bits) {
    case kDLBool << 8 | 8: use(bool()); break;
    case kDLInt << 8 | 8: use(std::int8_t()); break;
    case kDLInt << 8 | 16: use(std::int16_t()); break;
    case kDLInt << 8 | 32: use(std::int32_t()); break;
    case kDLInt << 8 | 64: use(std::int64_t()); break;
    case kDLUInt << 8 | 8: use(std::uint8_t()); break;
    case kDLUInt << 8 | 16: use(std::uint16_t()); break;
    case kDLUInt << 8 | 32: use(std::uint32_t()); break;
    case kDLUInt << 8 | 64: use(std::uint64_t()); break;
    case kDLFloat << 8 | 16: use(Float16()); break;
    case kDLFloat << 8 | 32: use(float()); break;
    case kDLFloat << 8 | 64: use(double()); break;
    case kDLBfloat << 8 | 16: use(Bfloat16()); break;
  }
}

// Calls `use` with a value of each C++ type if the conversion is lossless. Returns whether it is.
template <class Use>
bool visit_lossless(DLDataType from, DLDataType to, Use use) {
  bool lossless = false;
  visit_type(from, [&](auto source) {
    using From = decltype(source);
    visit_type(to, [&](auto target) {
      if constexpr (is_lossless<From, decltype(target)>()) {
        lossless = true;
        use(source, target);
      }
    });
  });
  return lossless;
}

// Calls `use` with each element of a tensor of type T, until it returns false. Returns whether it never did.
template <class T, class Use>
bool all_elements(const unsigned char* from, const std::int64_t* shape, const std::int64_t* strides, std::size_t axes,
                  const Use& use) {
  if (axes == 0) return use(load<T>(from));
  const std::int64_t step = *strides * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < *shape; ++i)
    if (!all_elements<T>(from + i * step, shape + 1, strides + 1, axes - 1, use)) return false;
  return true;
}

}  // namespace

const std::vector<ElementType>& element_types() {
  static const std::vector<ElementType> all = {
      {"bool", {kDLBool, 8, 1}, "boolean", "BOOL"},     {"int8", {kDLInt, 8, 1}, "i8", "I8"},
      {"int16", {kDLInt, 16, 1}, "i16", "I16"},         {"int32", {kDLInt, 32, 1}, "i32", "I32"},
      {"int64", {kDLInt, 64, 1}, "i64", "I64"},         {"uint8", {kDLUInt, 8, 1}, "u8", "U8"},
      {"uint16", {kDLUInt, 16, 1}, "u16", "U16"},       {"uint32", {kDLUInt, 32, 1}, "u32", "U32"},
      {"uint64", {kDLUInt, 64, 1}, "u64", "U64"},       {"float16", {kDLFloat, 16, 1}, "f16", "FP16"},
      {"float32", {kDLFloat, 32, 1}, "f32", "FP32"},    {"float64", {kDLFloat, 64, 1}, "f64", "FP64"},
      {"bfloat16", {kDLBfloat, 16, 1}, "bf16", "BF16"},
  };
  return all;
}

const ElementType* find_element_type(DLDataType dtype) noexcept {
  for (const ElementType& type : element_types())
    if (same_dtype(type.dtype, dtype)) return &type;
  return nullptr;
}

std::string show_dtype(DLDataType dtype) {
  if (const ElementType* type = find_element_type(dtype)) return type->name;
  return (dtype.code == kDLComplex ? "complex" : "dtype ") + std::to_string(dtype.bits);
}

bool converts_losslessly(DLDataType from, DLDataType to) {
  return visit_lossless(from, to, [](auto, auto) {});
}

std::vector<double> as_doubles(DLDataType dtype, const void* elements, std::size_t count) {
  std::vector<double> numbers(count);
  visit_type(dtype, [&](auto type) {
    using T = decltype(type);
    const auto* at = static_cast<const unsigned char*>(elements);
    for (double& number : numbers) {
      const T value = load<T>(at);
      if constexpr (is_half<T>)
        number = static_cast<double>(to_float(value));
      else
        number = static_cast<double>(value);
      at += sizeof(T);
    }
  });
  return numbers;
}

void from_floats(const std::vector<float>& values, DLDataType dtype, void* out) {
  visit_type(dtype, [&](auto type) {
    using T = decltype(type);
    auto* at = static_cast<T*>(out);
    for (const float value : values) *at++ = from_float<T>(value);
  });
}

bool fits_32_bits(const hami::Tensor& tensor) {
  const DLTensor& view = tensor.view();
  const auto* data = static_cast<const unsigned char*>(view.data) + view.byte_offset;
  constexpr std::int64_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  bool fits = true;
  visit_type(view.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T> && (sizeof(T) == 8 || std::is_same_v<T, std::uint32_t>)) {
      const auto is_small = [](T value) {
        if constexpr (std::is_signed_v<T>) return value >= kLeast && value <= kMost;
        return value <= static_cast<T>(kMost);
      };
      if (tensor.is_contiguous()) {
        // Without a branch in the loop, so that the compiler can use vector instructions.
        bool all = true;
        for (std::size_t i = 0, count = tensor.count(); i < count; ++i) all &= is_small(load<T>(data + i * sizeof(T)));
        fits = all;
      } else {
        fits = all_elements<T>(data, view.shape, view.strides, tensor.rank(), is_small);
      }
    }
  });
  return fits;
}

void copy_elements(const hami::Tensor& from, DLDataType to, void* out) {
  const DLTensor& view = from.view();
  const auto* data = static_cast<const unsigned char*>(view.data) + view.byte_offset;
  if (same_dtype(view.dtype, to) && from.is_contiguous()) {
    if (from.nbytes() > 0) std::memcpy(out, data, from.nbytes());
    return;
  }
  visit_lossless(view.dtype, to, [&](auto source, auto target) {
    using From = decltype(source);
    using To = decltype(target);
    copy_axes<From>(data, static_cast<To*>(out), view.shape, view.strides, from.rank());
  });
}

}  // namespace hami_openvino
