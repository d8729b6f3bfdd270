// The table of element types, and the copy that converts.
#include "elements.hpp"

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

float widened(Bfloat16 value) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float wide = 0;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

float widened(Float16 value) noexcept {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  std::uint32_t fraction = (value.bits & 0x3ffu) << 13;
  std::uint32_t bits = sign;
  if (exponent == 0x1f) {
    bits |= 0x7f800000u | fraction;  // infinite, or no number
  } else if (exponent != 0) {
    bits |= ((exponent + 112) << 23) | fraction;
  } else if (fraction != 0) {  // too small for a leading one: it gets one, and an exponent to match
    exponent = 113;
    while ((fraction & 0x800000u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    bits |= (exponent << 23) | (fraction & 0x7fffffu);
  }
  float wide = 0;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// Of an integer of 8 bits; each is a half, and none is one of the very small ones.
template <class Half>
Half narrowed(float value) noexcept {
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
    constexpr bool kinds = std::is_floating_point_v<To> ||
                           (std::is_integral_v<From> && (std::is_signed_v<To> || std::is_unsigned_v<From>));
    return kinds && std::numeric_limits<From>::digits <= std::numeric_limits<To>::digits;
  }
}

template <class From, class To>
To convert(From value) noexcept {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else if constexpr (is_half<To> && std::is_integral_v<From>)
    return narrowed<To>(static_cast<float>(value));
  else if constexpr (is_half<From>)
    return static_cast<To>(widened(value));
  else
    return static_cast<To>(value);
}

// Memory of others need not lie as its elements like it.
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

// Calls `use` with a value of the C++ type that stands for `dtype`; false if there is none.
template <class Use>
bool with_type(DLDataType dtype, Use use) {
  const Element* element = element_of(dtype);
  if (!element) return false;
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
  return true;
}

// Calls `use` with a value of each type if no value of the first is lost in the second; whether it is so.
template <class Use>
bool with_lossless(DLDataType from, DLDataType to, Use use) {
  bool lossless = false;
  with_type(from, [&](auto source) {
    using From = decltype(source);
    with_type(to, [&](auto target) {
      if constexpr (is_lossless<From, decltype(target)>()) {
        lossless = true;
        use(source, target);
      }
    });
  });
  return lossless;
}

}  // namespace

const std::vector<Element>& elements() {
  static const std::vector<Element> all = {
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

const Element* element_of(DLDataType dtype) noexcept {
  for (const Element& element : elements())
    if (same(element.dtype, dtype)) return &element;
  return nullptr;
}

std::string dtype_name(DLDataType dtype) {
  if (const Element* element = element_of(dtype)) return element->name;
  return (dtype.code == kDLComplex ? "complex" : "dtype ") + std::to_string(dtype.bits);
}

bool converts(DLDataType from, DLDataType to) {
  return with_lossless(from, to, [](auto, auto) {});
}

void copy_elements(const hami::Tensor& from, DLDataType to, void* out) {
  const DLTensor& view = from.view();
  const auto* data = static_cast<const unsigned char*>(view.data) + view.byte_offset;
  if (same(view.dtype, to) && from.is_contiguous()) {
    if (from.nbytes() > 0) std::memcpy(out, data, from.nbytes());
    return;
  }
  with_lossless(view.dtype, to, [&](auto source, auto target) {
    using From = decltype(source);
    using To = decltype(target);
    copy_axes<From>(data, static_cast<To*>(out), view.shape, view.strides, from.rank());
  });
}

}  // namespace hami_openvino
