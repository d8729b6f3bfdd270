// The inputs of one request: reads `data` by input name or in input order, and checks it against the model.
#pragma once

#include <hami/model_keys.hpp>
#include <vector>

#include "exact_cast.hpp"
#include "model.hpp"

namespace hami_openvino {

struct RequestInputs {
  hami::Dict item;
  std::vector<hami::Tensor> tensors;  // in the order of the model's inputs; copying them converts without loss
  std::vector<Shape> shapes;          // of the tensors, with an axis of one row if the data has no batch axis
  std::int64_t rows = 1;
  bool is_single_row = false;  // the data has no batch axis, so the result has none either
};

// hami::Error(HAMI_REQUEST or HAMI_DATA_TYPE) says what was given and what the model expects.
RequestInputs read_inputs(const hami::Dict& item, const Model& model, const hami::ModelKeys& keys, Cast cast);

}  // namespace hami_openvino
