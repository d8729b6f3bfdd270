// Converts element by element, and compares each with what it was.
#include "exact_cast.hpp"

#include <cmath>
#include <cstdlib>
#include <hami/elements.hpp>
#include <limits>
#include <sstream>
#include <type_traits>
#include <vector>

#include "element_types.hpp"
#include "error.hpp"

namespace hami_openvino {
namespace {

// A float32 whose rounding to 16 bits is that of the number: if it is inexact, its last bit is set.
float to_odd(double number) noexcept {
  const auto rounded = static_cast<float>(number);
  if (!std::isfinite(rounded) || static_cast<double>(rounded) == number || (hami::bits_of_float(rounded) & 1u))
    return rounded;
  const bool is_above = static_cast<double>(rounded) > number;
  return std::nextafter(rounded, (is_above ? -1.0F : 1.0F) * std::numeric_limits<float>::infinity());
}

__extension__ using Wide = __int128;  // has every integer of 64 bits

// Whether an integer type has the number, which may be of any kind.
template <class To, class Number>
bool has_number(Number number) noexcept {
  constexpr bool kIsSigned = To::kType.code == kDLInt;
  constexpr int kBits = To::kType.code == kDLBool ? 1 : To::kType.bits - kIsSigned;
  constexpr Wide kEnd = Wide{1} << kBits;
  if constexpr (std::is_floating_point_v<Number>)
    return number < static_cast<double>(kEnd) && number >= (kIsSigned ? -static_cast<double>(kEnd) : 0.0) &&
           std::trunc(number) == number;
  else
    return Wide{number} < kEnd && Wide{number} >= (kIsSigned ? -kEnd : 0);
}

// Stores a number; returns false if it is not the same except for rounding.
template <class To, class Number>
bool store(Number number, char* at) noexcept {
  if constexpr (!To::kIsFloat) {
    if (!has_number<To>(number)) return false;
    To::store(at, static_cast<typename To::number>(number));
    return true;
  } else {
    if constexpr (To::kIsHalf)
      To::store(at, to_odd(static_cast<double>(number)));
    else
      To::store(at, static_cast<typename To::number>(number));
    const auto stored = static_cast<double>(To::load(at));
    if constexpr (std::is_floating_point_v<Number>)
      return std::isfinite(stored) || !std::isfinite(number);
    else
      return std::isfinite(stored) && static_cast<Wide>(stored) == Wide{number};
  }
}

// The shortest of a few texts from which the number can be read back.
template <class Number>
std::string show_number(Number number) {
  if constexpr (std::is_integral_v<Number>) {
    return std::to_string(number);
  } else {
    for (const int digits : {6, 15, 17}) {
      std::ostringstream text;
      text.precision(digits);
      text << number;
      if (digits == 17 || std::strtod(text.str().c_str(), nullptr) == static_cast<double>(number)) return text.str();
    }
    return "";  // not reached
  }
}

void flatten(const hami::Value& value, std::size_t depth, std::vector<std::int64_t>& shape,
             std::vector<hami::Value>& numbers, const std::string& what) {
  const bool is_list = value.kind() == HAMI_LIST;
  const std::size_t length = is_list ? value.as_list().size() : 0;
  const bool is_first = numbers.empty() && depth == shape.size();
  if (is_list && is_first) shape.push_back(static_cast<std::int64_t>(length));
  const bool fits =
      is_list ? depth < shape.size() && shape[depth] == static_cast<std::int64_t>(length) : depth == shape.size();
  if (!fits || (!is_list && !is_plain(value)))
    fail(HAMI_DATA_TYPE, what + " expects numbers, got a list whose parts have different lengths or types");
  if (!is_list) return numbers.push_back(value);
  for (const hami::Value& part : value.as_list()) flatten(part, depth + 1, shape, numbers, what);
}

}  // namespace

Cast read_cast(const std::string& text) {
  if (text == "exact") return Cast::kExact;
  if (text == "safe") return Cast::kSafe;
  if (text == "false" || text == "False") return Cast::kNone;
  fail_setup("\"cast\" is \"exact\", \"safe\" or false, got \"" + text + "\"");
}

hami::Tensor cast_exactly(const hami::Tensor& given, DLDataType to, const std::string& what) {
  const hami::Tensor from = hami::Tensor::make(given.dtype(), given.shape());
  copy_elements(given, given.dtype(), from.view().data);
  const hami::Tensor result = hami::Tensor::make(to, given.shape());
  const auto* in = static_cast<const char*>(from.view().data);
  auto* out = static_cast<char*>(result.view().data);
  hami::with_element(from.dtype(), [&](auto source) {
    using From = decltype(source);
    hami::with_element(to, [&](auto target) {
      using To = decltype(target);
      for (std::size_t i = 0; i < from.count(); ++i) {
        const auto number = From::load(in + i * hami::item_size(From::kType));
        if (store<To>(number, out + i * hami::item_size(To::kType))) continue;
        const std::string expected = show_dtype(to);
        fail(HAMI_DATA_TYPE, what + " expects " + expected + ", got " + show_dtype(from.dtype()) + " with the value " +
                                 show_number(number) + ", which " + expected +
                                 " does not have; convert it with .astype(\"" + expected +
                                 "\") if the loss is acceptable");
      }
    });
  });
  return result;
}

bool is_plain(const hami::Value& value) {
  const std::int32_t kind = value.kind();
  if (kind != HAMI_LIST) return kind == HAMI_INT || kind == HAMI_FLOAT || kind == HAMI_BOOL;
  const std::vector<hami::Value> parts = value.as_list();
  return !parts.empty() && is_plain(parts[0]);
}

hami::Tensor tensor_of_numbers(const hami::Value& value, const std::string& what) {
  std::vector<std::int64_t> shape;
  std::vector<hami::Value> numbers;
  flatten(value, 0, shape, numbers, what);
  const auto all = [&](std::int32_t kind) {
    for (const hami::Value& number : numbers)
      if (number.kind() != kind) return false;
    return true;
  };
  const bool are_bools = all(HAMI_BOOL);
  bool has_float = false;
  for (const hami::Value& number : numbers) has_float = has_float || number.kind() == HAMI_FLOAT;
  const hami::Tensor tensor = hami::Tensor::make(are_bools   ? hami::kBool8
                                                 : has_float ? hami::kFloat64
                                                             : hami::kInt64,
                                                 shape);
  void* const data = tensor.view().data;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const hami::Value& number = numbers[i];
    const std::int64_t whole = number.kind() == HAMI_BOOL  ? std::int64_t{number.as_bool()}
                               : number.kind() == HAMI_INT ? number.as_int()
                                                           : 0;
    if (are_bools)
      static_cast<bool*>(data)[i] = whole != 0;
    else if (has_float)
      static_cast<double*>(data)[i] = number.kind() == HAMI_FLOAT ? number.as_float() : static_cast<double>(whole);
    else
      static_cast<std::int64_t*>(data)[i] = whole;
  }
  return tensor;
}

}  // namespace hami_openvino
