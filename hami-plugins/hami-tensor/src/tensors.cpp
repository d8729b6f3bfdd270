// Reads tensors from requests, and makes views and copies of them.
#include "tensors.hpp"

#include <cstring>
#include <memory>

namespace hami_tensor {
namespace {

// A view: its description, and the tensor whose memory it is.
struct View {
  hami::Tensor base;
  Shape shape;
  Shape strides;
  DLManagedTensorVersioned managed{};
};

void copy_axis(const DLTensor& tensor, int axis, int solid, std::size_t run, const char* from, char*& to) noexcept {
  if (axis == solid) {
    std::memcpy(to, from, run);
    to += run;
    return;
  }
  const std::ptrdiff_t step = tensor.strides[axis] * static_cast<std::ptrdiff_t>(hami::item_size(tensor.dtype));
  for (std::int64_t i = 0; i < tensor.shape[axis]; ++i, from += step) copy_axis(tensor, axis + 1, solid, run, from, to);
}

hami::Tensor tensor_in(const hami::Value& value, const std::string& name, const std::string& taker) {
  try {
    return value.as_tensor();
  } catch (const hami::Error& error) {
    if (error.code() != HAMI_DATA_TYPE) throw;
    constexpr std::string_view kOtherType = "expected a tensor, got ";
    const std::string_view text = error.what();
    const bool other = text.substr(0, kOtherType.size()) == kOtherType;
    throw hami::Error(
        HAMI_DATA_TYPE,
        taker + " takes a tensor (anything with __dlpack__), or a list or dict of them; " + name +
            (other ? " is of type " + std::string(text.substr(kOtherType.size())) : ": " + std::string(text)));
  }
}

}  // namespace

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::string show_shape(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

std::string show_tensor(const hami::Tensor& tensor) {
  return hami::dtype_name(tensor.dtype()) + " " + show_shape(tensor.shape());
}

bool is_float(DLDataType type) noexcept {
  bool found = false;
  hami::with_element(type, [&](auto element) { found = decltype(element)::kIsFloat; });
  return found;
}

hami::Tensor make_view(const hami::Tensor& tensor, Shape shape, Shape strides, std::int64_t first_element) {
  auto view = std::make_unique<View>(View{tensor, std::move(shape), std::move(strides), {}});
  char* data = data_of(tensor);
  if (data) data += first_element * static_cast<std::ptrdiff_t>(hami::item_size(tensor.dtype()));
  view->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  view->managed.manager_ctx = view.get();
  view->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<View*>(self->manager_ctx); };
  view->managed.flags = tensor.is_read_only() ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  view->managed.dl_tensor = {data,
                             tensor.device(),
                             static_cast<std::int32_t>(view->shape.size()),
                             tensor.dtype(),
                             view->shape.data(),
                             view->strides.data(),
                             0};
  return hami::Tensor::adopt(&view.release()->managed);
}

hami::Tensor with_row_axis(const hami::Tensor& tensor) {
  Shape shape = tensor.shape();
  Shape strides = strides_of(tensor);
  shape.insert(shape.begin(), 1);
  strides.insert(strides.begin(), static_cast<std::int64_t>(tensor.count()));
  return make_view(tensor, std::move(shape), std::move(strides));
}

void copy_elements(const hami::Tensor& tensor, char* to) noexcept {
  if (tensor.count() == 0) return;
  const DLTensor& view = tensor.view();
  // Axes from `solid` on are contiguous in memory.
  int solid = view.ndim;
  std::int64_t run = 1;
  while (solid > 0 && (view.shape[solid - 1] == 1 || view.strides[solid - 1] == run)) run *= view.shape[--solid];
  copy_axis(view, 0, solid, static_cast<std::size_t>(run) * hami::item_size(view.dtype), data_of(tensor), to);
}

hami::Tensor contiguous(const hami::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  hami::Tensor made = hami::Tensor::make(tensor.dtype(), tensor.shape());
  copy_elements(tensor, data_of(made));
  return made;
}

std::string TensorItems::name(std::size_t index) const {
  if (form == HAMI_LIST) return "element " + std::to_string(index) + " of `data`";
  if (form == HAMI_DICT) return in_quotes(keys[index]) + " of `data`";
  return "`data`";
}

bool TensorItems::same_form(const TensorItems& other) const {
  return form == other.form && keys == other.keys && tensors.size() == other.tensors.size();
}

std::string TensorItems::show_form() const {
  if (form == HAMI_TENSOR) return "a tensor";
  if (form == HAMI_LIST)
    return "a list of " + std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors");
  std::string text = "a dict of tensors (";
  for (std::size_t i = 0; i < keys.size(); ++i) text += (i > 0 ? ", " : "") + keys[i];
  return text + ")";
}

hami::Value TensorItems::with(const std::vector<hami::Value>& values) const {
  if (form == HAMI_TENSOR) return values.front();
  if (form == HAMI_LIST) return hami::Value::list(values);
  std::vector<std::pair<std::string, hami::Value>> entries;
  for (std::size_t i = 0; i < keys.size(); ++i) entries.emplace_back(keys[i], values[i]);
  return hami::Value::dict(entries);
}

TensorItems read_tensors(const hami::Dict& item, const std::string& taker) {
  const std::optional<hami::Value> data = item.find(kData);
  if (!data) throw hami::Error(HAMI_REQUEST, "the request has no `data`; " + taker + " takes a tensor");
  return read_tensors(*data, taker);
}

TensorItems read_tensors(const hami::Value& data, const std::string& taker) {
  TensorItems items;
  std::vector<hami::Value> values;
  if (data.kind() == HAMI_LIST) {
    values = data.as_list();
    items.form = HAMI_LIST;
  } else if (data.kind() == HAMI_DICT) {
    for (auto& [key, value] : data.as_dict()) {
      items.keys.push_back(key);
      values.push_back(std::move(value));
    }
    items.form = HAMI_DICT;
  } else {
    values.push_back(data);
  }
  for (std::size_t i = 0; i < values.size(); ++i) items.tensors.push_back(tensor_in(values[i], items.name(i), taker));
  return items;
}

void EachTensor::forward_(hami::Batch batch) {
  for (hami::Dict& item : batch) {
    try {
      const TensorItems items = read(item);
      item[kResult] = items.with(apply_to(item, items));
    } catch (const hami::Error& error) {
      item.fail(error);
    }
  }
}

std::vector<hami::Value> EachTensor::apply_to(const hami::Dict&, const TensorItems& items) const {
  std::vector<hami::Value> values;
  for (const hami::Tensor& tensor : items.tensors) values.push_back(apply(tensor));
  return values;
}

std::optional<std::int64_t> tensor_rows(const hami::Dict& item) {
  const std::optional<hami::Value> rows = item.find(kTensorRows);
  return rows && rows->kind() == HAMI_INT ? std::optional(rows->as_int()) : std::nullopt;
}

std::int64_t count_rows(const hami::Dict& item) {
  const std::optional<std::int64_t> rows = tensor_rows(item);
  if (!rows) return static_cast<std::int64_t>(item.request_size());
  return *rows == kWithoutBatchAxis ? 1 : *rows;
}

std::size_t axis_of(const hami::Tensor& tensor, std::int64_t axis, const std::string& taker) {
  const auto rank = static_cast<std::int64_t>(tensor.rank());
  if (axis < -rank || axis >= rank)
    throw hami::Error(HAMI_REQUEST, taker + " works along axis " + std::to_string(axis) + ", which " +
                                        show_tensor(tensor) + " does not have");
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

}  // namespace hami_tensor

HAMI_PLUGIN("tensor", HAMI_TENSOR_VERSION)
