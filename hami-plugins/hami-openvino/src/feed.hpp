// From a request's `data` to tensors that the model takes: by name or in order, and checked.
#pragma once

#include <hami/backend.hpp>
#include <vector>

#include "model.hpp"

namespace hami_openvino {

// One request, ready to run.
struct Feed {
  hami::Dict item;
  std::vector<hami::Tensor> tensors;  // in the order of the model's inputs, as they came
  std::vector<Shape> shapes;          // of these, with axis 0 also where the data came without
  std::int64_t rows = 1;
  bool alone = false;  // it came without a batch axis, so its outputs go without one
};

// hami::Error(HAMI_REQUEST or HAMI_DATA_TYPE) says which input takes what.
Feed read_feed(const hami::Dict& item, const Model& model);

}  // namespace hami_openvino
