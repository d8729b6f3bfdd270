// Element types that inputs and outputs may have, their names in NumPy and OpenVINO, and lossless conversion.
#pragma once

#include <hami/backend.hpp>
#include <string>
#include <vector>

namespace hami_openvino {

struct ElementType {
  const char* name;  // as NumPy calls it
  DLDataType dtype;
  const char* ir_type;       // attribute `element_type` of a Parameter layer in an IR file
  const char* ir_precision;  // attribute `precision` of a port in an IR file
};

const std::vector<ElementType>& element_types();
const ElementType* find_element_type(DLDataType dtype) noexcept;  // nullptr if it is not supported
std::string show_dtype(DLDataType dtype);

inline bool same_dtype(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Whether every value of `from` can be represented in `to`.
bool converts_losslessly(DLDataType from, DLDataType to);

// Writes all elements to `out` as type `to`, contiguous in row-major order.
// Precondition: converts_losslessly(from.dtype(), to).
void copy_elements(const hami::Tensor& from, DLDataType to, void* out);

// Contiguous elements of type `dtype` as numbers. 64-bit integers beyond 53 bits are rounded.
std::vector<double> as_doubles(DLDataType dtype, const void* elements, std::size_t count);

// Writes numbers as elements of type `dtype`, which must be able to represent integers among them; fractions are rounded.
void from_floats(const std::vector<float>& values, DLDataType dtype, void* out);

// Whether all elements are integers that 32 bits hold, with a sign. OpenVINO computes integers of 64 bits in 32.
bool fits_32_bits(const hami::Tensor& tensor);

}  // namespace hami_openvino
