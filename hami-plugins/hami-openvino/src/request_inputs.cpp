// Reads and checks the inputs of a request.
#include "request_inputs.hpp"

#include <algorithm>

#include "error.hpp"

namespace hami_openvino {
namespace {

std::string show_tensor(const hami::Tensor& tensor) {
  return show_dtype(tensor.dtype()) + " " + show_shape(tensor.shape());
}

// Describes a value that is not a list or dict of inputs.
std::string show_single(const hami::Value& data) {
  try {
    return "one tensor, " + show_tensor(data.as_tensor());
  } catch (const hami::Error&) {
    return "a value that is neither";
  }
}

// Returns the values in the order of the inputs: by name from a dict, in order from a list. A model with one input
// takes the data itself.
std::vector<hami::Value> values_of(const hami::Value& data, const Model& model) {
  const std::vector<Port>& inputs = model.inputs();
  if (data.kind() == HAMI_DICT) {
    const auto entries = data.as_dict();
    std::vector<std::optional<hami::Value>> by_input(inputs.size());
    std::size_t found = 0;
    std::size_t unused = 0;
    for (const auto& [key, value] : entries) {
      if (model.is_unused_input(key)) {
        ++unused;
      } else if (const std::optional<std::size_t> index = model.find_input(key)) {
        by_input[*index] = value;
        ++found;
      }
    }
    std::vector<hami::Value> values;
    for (const std::optional<hami::Value>& value : by_input)
      if (value) values.push_back(*value);
    if (values.size() == inputs.size() && found == inputs.size() && found + unused == entries.size()) return values;
    std::vector<std::string> keys;
    for (const auto& [key, value] : entries) keys.push_back(key);
    fail(HAMI_REQUEST,
         "the model has the inputs " + show_names(inputs) + ", got a dict with the keys " + hami::show_keys(keys));
  }
  if (data.kind() == HAMI_LIST && inputs.size() == 1 && is_plain(data)) return {data};  // the rows themselves
  if (data.kind() == HAMI_LIST) {
    std::vector<hami::Value> values = data.as_list();
    if (values.size() == inputs.size()) return values;
    if (values.size() == model.places().size() && !values.empty()) {
      std::vector<hami::Value> in_order(inputs.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        if (const std::optional<std::size_t> place = model.places()[i]) in_order[*place] = values[i];
      return in_order;
    }
    fail(HAMI_REQUEST,
         "the model has the inputs " + show_names(inputs) + ", got a list of length " + std::to_string(values.size()));
  }
  if (inputs.size() == 1) return {data};
  fail(HAMI_DATA_TYPE, "\"data\" must be a dict by input name, or a list in the order " + show_names(inputs) +
                           ", got " + show_single(data));
}

hami::Tensor tensor_in(const hami::Value& value, const Port& input, const std::string& what, Cast cast) {
  if (is_plain(value) && cast != Cast::kNone)
    return cast_exactly(tensor_of_numbers(value, what), input.type->dtype, what);
  try {
    return value.as_tensor();
  } catch (const hami::Error& error) {
    fail(HAMI_DATA_TYPE, "input \"" + input.name + "\", " + input.show() + ": " + error.what());
  }
}

hami::Tensor tensor_of(const hami::Value& value, const Port& input, Cast cast) {
  const std::string what = "input \"" + input.name + "\"";
  hami::Tensor tensor = tensor_in(value, input, what, cast);
  const std::string expected = input.type->name;
  const bool fits = cast == Cast::kNone ? same_dtype(tensor.dtype(), input.type->dtype)
                                        : converts_losslessly(tensor.dtype(), input.type->dtype);
  if (!fits && cast == Cast::kExact && find_element_type(tensor.dtype()))
    tensor = cast_exactly(tensor, input.type->dtype, what);
  else if (!fits)
    fail(HAMI_DATA_TYPE, what + " expects " + expected + ", got " + show_dtype(tensor.dtype()) +
                             ", which cannot be converted without loss; call .astype(\"" + expected +
                             "\") on the data to accept the loss");
  const DLDataType dtype = input.type->dtype;
  const bool has_64_bits = dtype.bits == 64 && (dtype.code == kDLInt || dtype.code == kDLUInt);
  if (has_64_bits && !fits_32_bits(tensor))
    fail(HAMI_REQUEST, "input \"" + input.name +
                           "\" has a value outside of -2147483648 to 2147483647; OpenVINO computes " + expected +
                           " in 32 bits and would use another value");
  return tensor;
}

// The number of rows is not checked here: it counts for the whole batch.
void check_shape(const hami::Tensor& tensor, const Shape& shape, const Port& input, int row_axis) {
  if (!input.has_rank) return;
  bool matches = shape.size() == input.shape.size();
  for (std::size_t axis = 0; matches && axis < shape.size(); ++axis)
    matches = input.shape[axis] == kDynamic || input.shape[axis] == shape[axis] || static_cast<int>(axis) == row_axis;
  if (!matches)
    fail(HAMI_REQUEST, "input \"" + input.name + "\" expects " + input.show() + ", got " + show_tensor(tensor));
}

// Returns the rows that all inputs have, and checks them against `request_size`.
std::int64_t count_rows(const RequestInputs& request, const Model& model) {
  const std::vector<int>& axes = model.axes().inputs;
  std::optional<std::int64_t> rows;
  bool are_common = true;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == kShared) continue;
    const std::int64_t own = request.shapes[i][static_cast<std::size_t>(axes[i])];
    are_common = are_common && rows.value_or(own) == own;
    rows = own;
  }
  if (!are_common) {
    std::string shown;
    for (std::size_t i = 0; i < axes.size(); ++i)
      shown += (i == 0 ? "" : ", ") + model.inputs()[i].name + " " + show_shape(request.shapes[i]);
    fail(HAMI_REQUEST, "all inputs must have the same number of rows (" + model.show_row_axes() + "), got " + shown);
  }
  const hami::Dict& item = request.item;
  if (item.contains("request_size") && item.request_size() != static_cast<std::uint64_t>(*rows))
    fail(HAMI_REQUEST, "\"request_size\" must be the number of rows (" + model.show_row_axes() + ") of the data, " +
                           std::to_string(*rows) + ", got " + std::to_string(item.request_size()));
  return *rows;
}

}  // namespace

RequestInputs read_inputs(const hami::Dict& item, const Model& model, const hami::ModelKeys& keys, Cast cast) {
  const std::vector<Port>& inputs = model.inputs();
  RequestInputs request{item, {}, {}};
  const std::vector<hami::Value> values = values_of(keys.data_of(item), model);
  const std::vector<int>& axes = model.axes().inputs;
  request.is_single_row = model.is_batched();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    request.tensors.push_back(tensor_of(values[i], inputs[i], cast));
    request.shapes.push_back(request.tensors.back().shape());
    if (axes[i] != kShared)
      request.is_single_row = request.is_single_row && request.shapes.back().size() + 1 == inputs[i].shape.size();
  }
  for (std::size_t i = 0; request.is_single_row && i < inputs.size(); ++i)
    if (axes[i] != kShared) request.shapes[i].insert(request.shapes[i].begin() + axes[i], 1);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_shape(request.tensors[i], request.shapes[i], inputs[i], axes[i]);
  if (model.is_batched()) request.rows = count_rows(request, model);
  return request;
}

}  // namespace hami_openvino
