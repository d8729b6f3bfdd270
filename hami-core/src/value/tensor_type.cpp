// Names of element types, and types by their name.
#include "value/tensor_type.hpp"

#include <array>
#include <utility>

namespace hami {
namespace {

// The codes above kDLBool have one width each, which is part of the name.
struct NamedCode {
  int code;
  int bits;
  const char* name;
};
constexpr NamedCode kNamedCodes[] = {
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
constexpr std::pair<int, const char*> kFamilies[] = {
    {kDLInt, "int"}, {kDLUInt, "uint"}, {kDLFloat, "float"}, {kDLBfloat, "bfloat"}, {kDLComplex, "complex"}};

std::string scalar_name(DLDataType type) {
  for (const NamedCode& named : kNamedCodes)
    if (named.code == type.code && named.bits == type.bits) return named.name;
  for (const auto& [code, family] : kFamilies)
    if (code == type.code) return family + std::to_string(type.bits);
  return "dtype(code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits)";
}

}  // namespace

std::string dtype_name(DLDataType type) {
  std::string name = scalar_name(type);
  if (type.lanes != 1) name += "x" + std::to_string(type.lanes);
  return name;
}

std::optional<DLDataType> dtype_of(std::string_view name) {
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
    if (scalar_name(type) == name) return type;
  for (const NamedCode& named : kNamedCodes)
    if (named.bits == 8 && named.name == name) return dtype(static_cast<DLDataTypeCode>(named.code), named.bits);
  return std::nullopt;
}

}  // namespace hami
