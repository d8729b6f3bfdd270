// The memory of the values in a dict.
#include "value/dict.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "value/error.hpp"
#include "value/tensor.hpp"

namespace hami {

// ---- byte_size: sums over the values that own memory.

namespace {

// On any device: only the shape is read.
std::size_t tensor_bytes(const Value& value) {
  return value.kind() == Kind::kTensor ? static_cast<const TensorObject*>(value.object())->bytes() : 0;
}

std::size_t owned_bytes(const Value& value) {
  std::size_t sum = 0;
  switch (value.kind()) {
    case Kind::kStr:
    case Kind::kBytes: return value.as_text().size();
    case Kind::kTensor: return tensor_bytes(value);
    case Kind::kOpaque: try { return tensor_bytes(static_cast<const OpaqueObject*>(value.object())->to_tensor());
      } catch (const Error&) {  // its memory cannot be read here
        return 0;
      }
    case Kind::kList:
      for (std::size_t i = 0; i < value.as_list().size(); ++i) sum += byte_size(value.as_list().at(i));
      return sum;
    case Kind::kDict:
      for (const auto& [key, inner] : value.as_dict().entries()) sum += key.size() + byte_size(inner);
      return sum;
    default: return 0;
  }
}

}  // namespace

std::size_t byte_size(const Value& value) { return sizeof(Value) + owned_bytes(value); }

std::size_t byte_size(const Dict& dict) {
  std::size_t sum = 0;
  for (const Dict::Entry& entry : dict) sum += entry.key.size() + byte_size(entry.value);
  return sum;
}

std::string show_bytes(std::size_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double shown = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; shown >= 1024 && unit + 1 < kUnits.size(); ++unit) shown /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", shown, kUnits[unit]);
  return text.data();
}

}  // namespace hami
