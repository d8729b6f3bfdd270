// Gives an infer request its inputs, and reads its outputs.
#pragma once

#include <string>
#include <vector>

#include "session.hpp"

namespace hami_openvino {

// An output in OpenVINO's memory, valid until the next run of its session.
struct Output {
  Owned<ov_tensor_t> tensor;
  Shape shape;
  const unsigned char* data = nullptr;
};

// Sets an input to the memory of a contiguous tensor of the input's type, which must stay valid until the run has ended.
// False: OpenVINO rejects it.
bool set_input(Session& session, std::size_t index, const hami::Tensor& tensor, Shape shape);

// hami::Error(HAMI_REQUEST) if an output cannot be read.
std::vector<Output> read_outputs(Session& session);

// A tensor as its rows lie in memory: `blocks` groups of `rows` rows of `bytes` each.
struct RowLayout {
  std::size_t blocks = 1;
  std::size_t rows = 0;
  std::size_t bytes = 0;

  RowLayout(const Shape& shape, int axis, std::size_t element_bytes);
};

// Copies `count` rows from one place to another; the layouts differ in the number of rows only.
void copy_rows(const RowLayout& from, const unsigned char* source, std::size_t first, const RowLayout& to,
               unsigned char* target, std::size_t at, std::size_t count);

// Copies an output into a tensor of `shape`, which may leave out axes of length 1.
hami::Tensor copy_output(const Output& output, const ElementType& type, const Shape& shape);
// The same for `count` rows along `axis`, from `first` on.
hami::Tensor copy_output(const Output& output, const ElementType& type, const Shape& shape, int axis,
                         std::int64_t first, std::int64_t count);

}  // namespace hami_openvino
