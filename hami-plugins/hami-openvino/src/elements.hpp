// Element types: as DLPack, numpy and OpenVINO call them, and which may become which without loss.
#pragma once

#include <hami/backend.hpp>
#include <string>
#include <vector>

namespace hami_openvino {

struct Element {
  const char* name;  // as numpy has it
  DLDataType dtype;
  const char* ir_type;  // in the text form of OpenVINO's models: of an element, and of a port
  const char* ir_precision;
};

// Those that a model's inputs and outputs may have here.
const std::vector<Element>& elements();
const Element* element_of(DLDataType dtype) noexcept;  // nullptr: none of these
std::string dtype_name(DLDataType dtype);

inline bool same(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Whether every value of `from` is one of `to`.
bool converts(DLDataType from, DLDataType to);

// Writes the elements of a tensor row by row without gaps, each as a `to`; converts(from.dtype(), to) must hold.
void copy_elements(const hami::Tensor& from, DLDataType to, void* out);

}  // namespace hami_openvino
