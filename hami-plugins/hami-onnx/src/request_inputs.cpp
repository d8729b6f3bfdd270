// Reads and checks the data of a request.
#include "request_inputs.hpp"

#include <algorithm>
#include <cstring>
#include <hami/elements.hpp>
#include <set>

namespace hami_onnx {
namespace {

std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }

// The tensor of a value that the model can take without a loss; nullopt: the value needs a conversion, or is wrong.
std::optional<hami::Tensor> tensor_of(const hami::Value& value, const Port& port, const Plan& plan) {
  if (value.kind() != HAMI_TENSOR && value.kind() != HAMI_OPAQUE) return std::nullopt;
  try {
    hami::Tensor tensor = value.as_tensor();
    const bool fits = hami::same_dtype(tensor.dtype(), *port.dtype) ||
                      (plan.casts && hami::casts_safely(tensor.dtype(), *port.dtype));
    return fits ? std::optional(std::move(tensor)) : std::nullopt;
  } catch (const hami::Error& error) {
    if (error.code() != HAMI_DATA_TYPE) throw;
    return std::nullopt;
  }
}

const Port* find(const std::vector<Port>& ports, const std::string& name) noexcept {
  for (const Port& port : ports)
    if (port.name == name) return &port;
  return nullptr;
}

bool read_by_name(const hami::Value& data, const Session& session, const Plan& plan, RequestInputs& request) {
  const std::vector<Port>& inputs = session.inputs();
  std::vector<std::optional<hami::Tensor>> tensors(inputs.size());
  for (const auto& [key, value] : data.as_dict()) {
    const Port* const input = find(inputs, key);
    const Port* const port = input ? input : find(session.optional(), key);
    std::optional<hami::Tensor> tensor = port ? tensor_of(value, *port, plan) : std::nullopt;
    if (!tensor) return false;
    if (input)
      tensors[static_cast<std::size_t>(input - inputs.data())] = std::move(tensor);
    else
      request.extra.push_back({port, *std::move(tensor)});
  }
  for (std::optional<hami::Tensor>& tensor : tensors) {
    if (!tensor) return false;
    request.tensors.push_back(*std::move(tensor));
  }
  return true;
}

// Reads a dict by name, a list in the order of the inputs, or the value of the only input. False: a value needs a conversion,
// or is wrong.
bool read_values(const hami::Value& data, const Session& session, const Plan& plan, RequestInputs& request) {
  if (data.kind() == HAMI_DICT) return read_by_name(data, session, plan, request);
  const std::vector<Port>& inputs = session.inputs();
  const std::vector<hami::Value> values = data.kind() == HAMI_LIST ? data.as_list() : std::vector<hami::Value>{data};
  if (values.size() != inputs.size()) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::optional<hami::Tensor> tensor = tensor_of(values[i], inputs[i], plan);
    if (!tensor) return false;
    request.tensors.push_back(*std::move(tensor));
  }
  return true;
}

// Whether all arrays with rows lack the axis of the rows.
bool is_without_batch_axis(const RequestInputs& request, const std::vector<Port>& inputs, const Plan& plan) {
  bool lacks = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (plan.lone_axes[i] == kShared) continue;
    if (inputs[i].shape.empty() || request.shapes[i].size() + 1 != inputs[i].shape.size()) return false;
    lacks = true;
  }
  return lacks;
}

void check_shape(const RequestInputs& request, std::size_t index, const Port& port, const Plan& plan) {
  const Shape& shape = request.shapes[index];
  if (port.shape.empty()) return;  // a scalar, or the model does not state the rank
  const int rows = plan.input_axes[index];
  bool fits = shape.size() == port.shape.size();
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis)
    fits = port.shape[axis] == kAnySize || port.shape[axis] == shape[axis] || static_cast<int>(axis) == rows;
  if (fits) return;
  const bool other_rows = !plan.joins && shape.size() == port.shape.size() &&
                          std::equal(shape.begin() + 1, shape.end(), port.shape.begin() + 1);
  fail(HAMI_REQUEST, "input " + in_quotes(port.name) + " expects " + port.show() + ", got " +
                         hami::dtype_name(request.tensors[index].dtype()) + " " + show_shape(shape) +
                         (other_rows ? "; a batch with fewer rows is not padded, because " + plan.why_not_joined : ""));
}

std::string show_axes(const Plan& plan) {
  std::string text;
  for (const int axis : std::set<int>(plan.input_axes.begin(), plan.input_axes.end()))
    if (axis != kShared) text += (text.empty() ? "axis " : " or ") + std::to_string(axis);
  return text;
}

std::int64_t count_rows(const RequestInputs& request, const std::vector<Port>& inputs, const Plan& plan) {
  std::optional<std::int64_t> rows;
  bool are_equal = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (plan.input_axes[i] == kShared) continue;
    const auto axis = static_cast<std::size_t>(plan.input_axes[i]);
    if (axis >= request.shapes[i].size())
      fail(HAMI_REQUEST,
           "the rows of the data are its axis " + std::to_string(axis) + ", got " + show_tensor(request.tensors[i]));
    are_equal = are_equal && rows.value_or(request.shapes[i][axis]) == request.shapes[i][axis];
    rows = request.shapes[i][axis];
  }
  if (!are_equal) {
    std::string shown;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      shown += (i == 0 ? "" : ", ") + inputs[i].name + " " + show_shape(request.shapes[i]);
    fail(HAMI_REQUEST, "all inputs must have the same number of rows (" + show_axes(plan) + "), got " + shown);
  }
  if (request.item.contains("request_size") && request.item.request_size() != static_cast<std::uint64_t>(*rows))
    fail(HAMI_REQUEST, "\"request_size\" must be the number of rows (" + show_axes(plan) + ") of the data, " +
                           std::to_string(*rows) + ", got " + std::to_string(request.item.request_size()));
  return *rows;
}

template <class From, class To>
char* convert_axes(const char* from, char* to, const std::int64_t* shape, const std::int64_t* strides, int axes) {
  if (axes == 0) {
    To::store(to, static_cast<typename To::number>(From::load(from)));
    return to + To::kType.bits / 8;
  }
  const std::ptrdiff_t step = *strides * (From::kType.bits / 8);
  for (std::int64_t i = 0; i < *shape; ++i, from += step)
    to = convert_axes<From, To>(from, to, shape + 1, strides + 1, axes - 1);
  return to;
}

}  // namespace

RequestInputs read_inputs(const hami::Dict& item, const Session& session, const Plan& plan, const Convert& convert) {
  const hami::Value data = plan.keys.data_of(item);
  RequestInputs request{item, {}, {}, {}};
  if (!read_values(data, session, plan, request)) {
    request.tensors.clear();
    request.extra.clear();
    const hami::Value converted = convert(item, data);
    if (!read_values(converted, session, plan, request))
      fail(HAMI_DATA_TYPE, "\"data\" does not fit the inputs of the model");
  }
  const std::vector<Port>& inputs = session.inputs();
  for (const hami::Tensor& tensor : request.tensors) request.shapes.push_back(tensor.shape());
  request.is_without_batch_axis = is_without_batch_axis(request, inputs, plan);
  for (std::size_t i = 0; request.is_without_batch_axis && i < inputs.size(); ++i)
    if (plan.lone_axes[i] != kShared) request.shapes[i].insert(request.shapes[i].begin() + plan.lone_axes[i], 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) check_shape(request, i, inputs[i], plan);
  if (plan.joins) request.rows = count_rows(request, inputs, plan);
  return request;
}

bool is_usable(const hami::Tensor& tensor, DLDataType dtype) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.view().data);
  return hami::same_dtype(tensor.dtype(), dtype) && tensor.is_contiguous() && address % hami::item_size(dtype) == 0;
}

void convert(const hami::Tensor& tensor, DLDataType to, void* out) {
  const DLTensor& view = tensor.view();
  if (tensor.count() == 0) return;
  if (hami::same_dtype(tensor.dtype(), to) && tensor.is_contiguous()) {
    std::memcpy(out, view.data, tensor.nbytes());
    return;
  }
  hami::with_element(tensor.dtype(), [&](auto from) {
    hami::with_element(to, [&](auto target) {
      convert_axes<decltype(from), decltype(target)>(static_cast<const char*>(view.data), static_cast<char*>(out),
                                                     view.shape, view.strides, view.ndim);
    });
  });
}

}  // namespace hami_onnx
