// The outputs of a run as tensors: whole outputs keep the library's memory where that is safe, rows are copied.
#pragma once

#include <optional>

#include "plan.hpp"

namespace hami_onnx {

// One output of a run, in the library's memory or in that of a tensor.
struct Output {
  Owned<OrtValue> value;
  std::optional<hami::Tensor> tensor;
  DLDataType dtype{};
  Shape shape;
  char* data = nullptr;

  static Output of(const Library& library, Owned<OrtValue> value);
  static Output of(hami::Tensor tensor);

  // Number of rows along `axis`; -1 if there is no such axis.
  std::int64_t rows(int axis) const noexcept {
    return static_cast<std::size_t>(axis) < shape.size() ? shape[static_cast<std::size_t>(axis)] : -1;
  }
};

// Rows of a tensor in memory: `blocks` groups of `rows` rows of `bytes` each.
struct RowLayout {
  std::size_t blocks = 1;
  std::size_t rows = 0;
  std::size_t bytes = 0;

  RowLayout(const Shape& shape, int axis, DLDataType dtype);
};

// Copies `count` rows; the layouts differ in the number of rows only.
void copy_rows(const RowLayout& from, const char* source, std::size_t first, const RowLayout& to, char* target,
               std::size_t at, std::size_t count);

Shape with_rows(Shape shape, int axis, std::int64_t rows);  // unchanged if the axis is kShared
Shape without_axis(Shape shape, int axis);                  // unchanged if the axis is kShared

// The whole output, of this shape. `adopts`: its memory belongs to this run only, so that a large one is not copied.
hami::Tensor whole(Output& output, const Shape& shape, bool adopts);
// A copy of `count` rows; `drops_axis`: of one row, without its axis.
hami::Tensor part(const Output& output, int axis, std::int64_t first, std::int64_t count, bool drops_axis = false);

}  // namespace hami_onnx
