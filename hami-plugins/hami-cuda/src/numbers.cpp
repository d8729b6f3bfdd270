// Reads numbers of lists and tensors.
#include "numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace hami_cuda {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number_in(const hami::Value& value) {
  if (value.kind() == HAMI_INT) return static_cast<double>(value.as_int());
  if (value.kind() == HAMI_FLOAT) return value.as_float();
  if (value.kind() != HAMI_STR) return kNone;
  const std::string text(value.as_text());
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return text.empty() || *end ? kNone : number;
}

template <class T>
std::vector<double> elements(const hami::Tensor& tensor) {
  const T* const first = tensor.data<const T>();
  return {first, first + tensor.count()};
}

std::vector<double> elements(const hami::Tensor& tensor) {
  const DLDataType type = tensor.dtype();
  if (tensor.device().device_type == kDLCPU && tensor.is_contiguous()) {
    if (type.code == kDLFloat && type.bits == 32) return elements<float>(tensor);
    if (type.code == kDLFloat && type.bits == 64) return elements<double>(tensor);
    if (type.code == kDLInt && type.bits == 32) return elements<std::int32_t>(tensor);
    if (type.code == kDLInt && type.bits == 64) return elements<std::int64_t>(tensor);
  }
  return {kNone};
}

}  // namespace

std::optional<std::vector<double>> numbers_of(const hami::Value& value) {
  std::vector<double> numbers;
  if (value.kind() == HAMI_LIST) {
    for (const hami::Value& item : value.as_list()) numbers.push_back(number_in(item));
  } else {
    try {
      numbers = elements(hami::Tensor(value));
    } catch (const hami::Error&) {
      return std::nullopt;
    }
  }
  if (!std::all_of(numbers.begin(), numbers.end(), [](double number) { return std::isfinite(number); }))
    return std::nullopt;
  return numbers;
}

std::string show(const std::vector<double>& numbers) {
  std::string text;
  char number[32];
  for (const double each : numbers) {
    std::snprintf(number, sizeof number, "%g", each);
    text += (text.empty() ? "" : ", ") + std::string(number);
  }
  return "[" + text + "]";
}

}  // namespace hami_cuda
