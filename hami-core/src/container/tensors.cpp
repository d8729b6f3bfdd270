// Reads tensors from requests, and registers the tensor backends.
#include "container/tensors.hpp"

#include "value/visible.hpp"

namespace hami {

void register_tensor_fixing(Registry& registry);
void register_tensor_gathering(Registry& registry);
void register_tensor_scores(Registry& registry);

namespace {

Tensor tensor_in(const Value& value, const std::string& name, const std::string& taker) {
  const std::string expected = taker + " takes a tensor (anything with __dlpack__), or a list or dict of them; " + name;
  Value seen = value;
  try {
    if (value.kind() == Kind::kOpaque) seen = static_cast<const OpaqueObject*>(value.object())->to_tensor();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataType) throw;
    throw Error(ErrorCode::kDataType, expected + ": " + error.message());
  }
  if (seen.kind() != Kind::kTensor) throw Error(ErrorCode::kDataType, expected + " is of type " + type_name(value));
  return seen.as_tensor();
}

}  // namespace

std::string TensorItems::name(std::size_t index) const {
  if (form == Kind::kList) return "element " + std::to_string(index) + " of `data`";
  if (form == Kind::kDict) return in_quotes(keys[index]) + " of `data`";
  return "`data`";
}

bool TensorItems::same_form(const TensorItems& other) const {
  return form == other.form && keys == other.keys && tensors.size() == other.tensors.size();
}

std::string TensorItems::show_form() const {
  if (form == Kind::kTensor) return "a tensor";
  if (form == Kind::kList)
    return "a list of " + std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors");
  std::string text = "a dict of tensors (";
  for (std::size_t i = 0; i < keys.size(); ++i) text += (i > 0 ? ", " : "") + visible(keys[i]);
  return text + ")";
}

Value TensorItems::with(std::vector<Value> values) const {
  if (form == Kind::kTensor) return std::move(values.front());
  if (form == Kind::kList) return make_list(std::move(values));
  std::vector<std::pair<std::string, Value>> entries;
  for (std::size_t i = 0; i < keys.size(); ++i) entries.emplace_back(keys[i], std::move(values[i]));
  return make_dict(std::move(entries));
}

TensorItems read_tensors(const Request& request, const std::string& taker) {
  const Value* data = request.dict.find(kData);
  if (!data) throw Error(ErrorCode::kRequest, "the request has no `data`; " + taker + " takes a tensor");
  TensorItems items;
  std::vector<Value> values;
  if (data->kind() == Kind::kList) {
    const ListObject& list = data->as_list();
    for (std::size_t i = 0; i < list.size(); ++i) values.push_back(list.at(i));
    items.form = Kind::kList;
  } else if (data->kind() == Kind::kDict) {
    for (const auto& [key, value] : data->as_dict().entries()) {
      items.keys.push_back(key);
      values.push_back(value);
    }
    items.form = Kind::kDict;
  } else {
    values.push_back(*data);
  }
  for (std::size_t i = 0; i < values.size(); ++i) items.tensors.push_back(tensor_in(values[i], items.name(i), taker));
  return items;
}

void EachTensor::forward_(Batch batch) {
  for (Request* request : batch) {
    try {
      const TensorItems items = read_tensors(*request, label());
      request->dict.set(kResult, items.with(apply_to(*request, items)));
    } catch (...) {
      request->fail(current_error().with_note("backend " + label()));
    }
  }
}

std::vector<Value> EachTensor::apply_to(Request&, const TensorItems& items) const {
  std::vector<Value> values;
  for (const Tensor& tensor : items.tensors) values.push_back(apply(tensor));
  return values;
}

Tensor with_row_axis(const Tensor& tensor) {
  Shape shape = tensor->shape();
  Shape strides = tensor->strides();
  shape.insert(shape.begin(), 1);
  strides.insert(strides.begin(), static_cast<std::int64_t>(tensor->count()));
  return make_view(tensor, std::move(shape), std::move(strides));
}

void set_tensor_rows(Request& request, std::int64_t rows) {
  clear_tensor_rows(request);
  request.dict.enter(std::string(kTensorRows), rows);  // not `set`, which would write it into the caller's dict
}

void clear_tensor_rows(Request& request) { request.dict.erase(kTensorRows); }

std::optional<std::int64_t> tensor_rows(const Request& request) {
  const Value* rows = request.dict.find(kTensorRows);
  return rows && rows->kind() == Kind::kInt ? std::optional(rows->as_int()) : std::nullopt;
}

std::size_t count_rows(const Request& request) {
  const std::optional<std::int64_t> rows = tensor_rows(request);
  if (!rows) return request.items;
  return *rows == kWithoutBatchAxis ? 1 : static_cast<std::size_t>(*rows);
}

std::size_t axis_of(const TensorObject& tensor, std::int64_t axis, const std::string& taker) {
  const auto rank = static_cast<std::int64_t>(tensor.rank());
  if (axis < -rank || axis >= rank)
    throw Error(ErrorCode::kRequest, taker + " works along axis " + std::to_string(axis) + ", which " +
                                         show_tensor(tensor) + " does not have");
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

void register_tensors(Registry& registry) {
  register_tensor_fixing(registry);
  register_tensor_gathering(registry);
  register_tensor_scores(registry);
}

}  // namespace hami
