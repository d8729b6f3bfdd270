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

// Copies `count` rows of an output, from `first` on, into a tensor of this type and shape.
hami::Tensor copy_rows(const Output& output, const ElementType& type, const Shape& shape, std::int64_t first,
                       std::int64_t count);

}  // namespace hami_openvino
