// Reads requests; every message says what was given and what the model takes.
#include "feed.hpp"

#include <algorithm>

namespace hami_openvino {
namespace {

[[noreturn]] void refuse(std::int32_t code, const std::string& text) {
  throw hami::Error(code, "OpenvinoTensor: " + text);
}

std::string show_keys(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "\"" : ", \"") + key + "\"";
  return "[" + text + "]";
}

std::string show_type(const hami::Tensor& tensor) { return dtype_name(tensor.dtype()) + " " + show_shape(tensor.shape()); }

// What is given where several values are wanted.
std::string show_one(const hami::Value& data) {
  try {
    return "one tensor, " + show_type(data.as_tensor());
  } catch (const hami::Error&) {
    return "one value that is no tensor";
  }
}

// By name from a dict, in order from a list, the data itself if there is one input.
std::vector<hami::Value> values_of(const hami::Value& data, const Model& model) {
  const std::vector<Port>& inputs = model.inputs();
  if (data.kind() == HAMI_DICT) {
    const auto entries = data.as_dict();
    std::vector<std::optional<hami::Value>> named(inputs.size());
    std::vector<hami::Value> values;
    for (const auto& [key, value] : entries)
      if (const std::optional<std::size_t> index = model.input_called(key)) named[*index] = value;
    for (const std::optional<hami::Value>& value : named)
      if (value) values.push_back(*value);
    if (values.size() == inputs.size() && entries.size() == inputs.size()) return values;
    std::vector<std::string> keys;
    for (const auto& [key, value] : entries) keys.push_back(key);
    refuse(HAMI_REQUEST, "the inputs are " + show_names(inputs) + ", got a dict of " + show_keys(keys));
  }
  if (data.kind() == HAMI_LIST) {
    std::vector<hami::Value> values = data.as_list();
    if (values.size() == inputs.size()) return values;
    refuse(HAMI_REQUEST, "the inputs are " + show_names(inputs) + ", got a list of " + std::to_string(values.size()));
  }
  if (inputs.size() == 1) return {data};
  refuse(HAMI_DATA_TYPE, "it takes a dict by input name or a list in this order: " + show_names(inputs) + ", got " + show_one(data));
}

hami::Tensor tensor_of(const hami::Value& value, const Port& input) {
  const auto what = [&] { return "input \"" + input.name + "\" takes "; };
  const hami::Tensor tensor = [&] {
    try {
      return value.as_tensor();
    } catch (const hami::Error& error) {
      refuse(HAMI_DATA_TYPE, what() + "a tensor (" + input.show() + "): " + error.what());
    }
  }();
  if (!converts(tensor.dtype(), input.element->dtype))
    refuse(HAMI_DATA_TYPE, what() + input.element->name + ", got " + dtype_name(tensor.dtype()) +
                               ", which does not fit without loss; convert it with .astype(\"" + input.element->name +
                               "\") if that is what you want");
  return tensor;
}

// Axis 0 of a batch is counted for all requests together.
void check_shape(const hami::Tensor& tensor, const Shape& shape, const Port& input, bool batched) {
  if (!input.ranked) return;
  bool fits = shape.size() == input.shape.size();
  for (std::size_t axis = batched ? 1 : 0; fits && axis < shape.size(); ++axis)
    fits = input.shape[axis] == kFree || input.shape[axis] == shape[axis];
  if (!fits)
    refuse(HAMI_REQUEST, "input \"" + input.name + "\" takes " + input.show() + ", got " + show_type(tensor));
}

}  // namespace

Feed read_feed(const hami::Dict& item, const Model& model) {
  const std::vector<Port>& inputs = model.inputs();
  const std::optional<hami::Value> data = item.find("data");
  if (!data) refuse(HAMI_REQUEST, "the request has no \"data\"; its keys are " + show_keys(item.keys()));
  Feed feed{item, {}, {}};
  const std::vector<hami::Value> values = values_of(*data, model);
  feed.alone = model.is_batched();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    feed.tensors.push_back(tensor_of(values[i], inputs[i]));
    feed.shapes.push_back(feed.tensors.back().shape());
    feed.alone = feed.alone && feed.shapes.back().size() + 1 == inputs[i].shape.size();
  }
  if (feed.alone)
    for (Shape& shape : feed.shapes) shape.insert(shape.begin(), 1);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_shape(feed.tensors[i], feed.shapes[i], inputs[i], model.is_batched());
  if (!model.is_batched()) return feed;
  feed.rows = feed.shapes[0][0];
  if (std::any_of(feed.shapes.begin(), feed.shapes.end(), [&](const Shape& shape) { return shape[0] != feed.rows; })) {
    std::string shown;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      shown += (i == 0 ? "" : ", ") + inputs[i].name + " " + show_shape(feed.shapes[i]);
    refuse(HAMI_REQUEST, "the inputs differ in their rows (axis 0): " + shown);
  }
  if (item.contains("request_size") && item.request_size() != static_cast<std::uint64_t>(feed.rows))
    refuse(HAMI_REQUEST, "\"request_size\" is " + std::to_string(item.request_size()) + ", but the data has " +
                             std::to_string(feed.rows) + " rows (axis 0)");
  return feed;
}

}  // namespace hami_openvino
