// The numbers behind the test and the watch of rows.
#include "row_difference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

namespace hami_openvino {
namespace {

constexpr double kNodes = 256;         // that follow each other
constexpr double kTermsOfWide = 4096;  // of the sums of common layers
constexpr double kTermsOfHalf = 16;    // values of 16 bits are summed in float32, and only the results are rounded
constexpr double kLoosest = 0.1;       // a tolerance above it would accept another answer

bool is_float(const ElementType& type) { return type.dtype.code == kDLFloat || type.dtype.code == kDLBfloat; }

}  // namespace

std::string show_difference(const Difference& difference, std::int64_t rows) {
  std::ostringstream text;
  text << "is " << difference.alone << " alone and " << difference.together << " in a batch of " << rows;
  return text.str();
}

Difference largest_difference(const ElementType& type, const void* alone, const void* together, std::size_t count) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::vector<double> a = as_doubles(type.dtype, alone, count);
  const std::vector<double> b = as_doubles(type.dtype, together, count);
  double scale = 0;
  Difference largest;
  double distance = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
      if (std::isfinite(a[i])) scale = std::max(scale, std::abs(a[i]));
      continue;
    }
    if (!is_float(type) || !std::isfinite(a[i]) || !std::isfinite(b[i])) return {kInfinite, a[i], b[i]};
    scale = std::max({scale, std::abs(a[i]), std::abs(b[i])});
    if (std::abs(a[i] - b[i]) > distance) {
      distance = std::abs(a[i] - b[i]);
      largest = {0, a[i], b[i]};
    }
  }
  largest.relative = scale > 0 ? distance / scale : 0;
  return largest;
}

double tolerance(const ElementType& type, bool computes_in_16_bits) {
  if (!is_float(type)) return 0;
  const bool half = computes_in_16_bits || type.dtype.bits == 16;
  const bool brain = computes_in_16_bits || type.dtype.code == kDLBfloat;
  // OpenVINO computes float64 in float32.
  const double eps = !half ? std::ldexp(1.0, -23) : std::ldexp(1.0, brain ? -7 : -10);
  return std::min(kLoosest, eps * std::sqrt(half ? kTermsOfHalf : kTermsOfWide) * std::sqrt(kNodes));
}

}  // namespace hami_openvino
