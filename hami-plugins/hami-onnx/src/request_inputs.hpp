// The inputs of one request: reads `data` by input name or in input order, and checks it against the model.
#pragma once

#include <functional>
#include <vector>

#include "plan.hpp"

namespace hami_onnx {

struct ExtraInput {
  const Port* port;
  hami::Tensor tensor;
};

struct RequestInputs {
  hami::Dict item;
  std::vector<hami::Tensor> tensors;  // in the order of the model's inputs, not converted
  std::vector<Shape> shapes;          // theirs, with the axis of the rows
  std::vector<ExtraInput> extra;      // initializers that the request replaces; it then runs alone
  std::int64_t rows = 1;
  bool is_without_batch_axis = false;  // the data has no batch axis, so the result gets none either
};

// Returns `data` with arrays that the model takes, by name; or throws why it does not fit.
using Convert = std::function<hami::Value(const hami::Dict& item, const hami::Value& data)>;

// hami::Error(HAMI_REQUEST or HAMI_DATA_TYPE) if the model cannot run the request. `convert` is called for data that are not
// tensors of the model's types, or of types whose values these all have.
RequestInputs read_inputs(const hami::Dict& item, const Session& session, const Plan& plan, const Convert& convert);

// Whether the library can read the memory of a tensor as it is.
bool is_usable(const hami::Tensor& tensor, DLDataType dtype) noexcept;
// Writes all elements to `out` as type `to`, in row-major order. Precondition: hami::casts_safely(tensor.dtype(), to).
void convert(const hami::Tensor& tensor, DLDataType to, void* out);

}  // namespace hami_onnx
