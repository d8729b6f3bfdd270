// Makes tensors of bytes, and checks inputs against those of a model.
#include "inputs.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace hami_serve {
namespace {

constexpr std::size_t kMaxCopied =
    8 << 20;  // bytes that are looked at or copied: about 2 ms on the thread of the connections

// A tensor whose memory is that of a body.
struct Managed {
  DLManagedTensorVersioned tensor{};
  std::shared_ptr<Body> body;
  std::vector<std::int64_t> shape;
};

hami::Value tensor_in(const std::shared_ptr<Body>& body, const Input& input, char* data) {
  auto managed = std::make_unique<Managed>();
  managed->body = body;
  managed->shape = input.shape;
  managed->tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->tensor.manager_ctx = managed.get();
  managed->tensor.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Managed*>(self->manager_ctx); };
  DLTensor& tensor = managed->tensor.dl_tensor;
  tensor.data = data;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<std::int32_t>(managed->shape.size());
  tensor.dtype = input.type->type;
  tensor.shape = managed->shape.data();
  return hami::Tensor::adopt(&managed.release()->tensor);
}

// Of the tensor in a pipe.
std::string_view datatype_inside(std::string_view datatype) noexcept { return datatype == "BF16" ? "FP32" : datatype; }

bool fits(const Spec& spec, const Input& input) noexcept {
  if (spec.datatype.empty()) return true;
  if (datatype_inside(spec.datatype) != datatype_inside(input.type->name) || spec.shape.size() != input.shape.size())
    return false;
  for (std::size_t axis = 0; axis < spec.shape.size(); ++axis)
    if (spec.shape[axis] != -1 && spec.shape[axis] != input.shape[axis]) return false;
  return true;
}

// The rows of a request: the length of axis 0 of its inputs, if the model takes any number of rows.
std::uint64_t check_inputs(const std::vector<Input>& inputs, const Model& model) {
  require(model.inputs.empty() || model.inputs.size() == inputs.size());
  std::int64_t rows = 0;
  for (const Input& input : inputs) {
    const Spec* const spec = spec_of(model.inputs, input.name);
    require(spec || model.inputs.empty());
    require(!spec || !model.checks_inputs || fits(*spec, input));
    const bool any = spec && !spec->shape.empty() && spec->shape[0] == -1 && spec->shape.size() == input.shape.size();
    const std::int64_t own = any ? input.shape[0] : 1;
    rows = rows == 0 || rows == own ? own : -1;
  }
  return rows < 1 ? 1 : static_cast<std::uint64_t>(rows);
}

// An element of BYTES, as str or as bytes.
hami::Value value_of_text(const Input& input, const Model& model) {
  const std::string_view text = *input.text;
  require(text.size() <= kMaxCopied);
  const Spec* const spec = spec_of(model.inputs, input.name);
  if (!(spec && !spec->datatype.empty() ? spec->is_text : model.takes_text.value_or(true)))
    return hami::Value::bytes(text);
  require(simdjson::validate_utf8(text.data(), text.size()));
  return hami::Value(text);
}

// Native backends have no type for an array of texts. A pipe takes the only element of the only input as its data.
void set_text(Input& input, const Model& model, const Table& table, Inference& inference) {
  require(input.text && input.shape == std::vector<std::int64_t>{1} && table.reserved.count(input.name) == 0);
  hami::Value value = value_of_text(input, model);
  if (input.name != "data") inference.keys.emplace_back(std::move(input.name), hami::Value::list({value}));
  inference.keys.emplace_back("data", std::move(value));
}

void set_keys(std::vector<Input>& inputs, const Table& table, Inference& inference) {
  bool has_data = false;
  for (const Input& input : inputs) {
    require(table.reserved.count(input.name) == 0);
    has_data = has_data || input.name == "data";
  }
  if (!has_data && inputs.size() == 1) {
    inference.keys.emplace_back("data", inputs[0].value);
  } else if (!has_data) {
    std::vector<std::pair<std::string, hami::Value>> all;
    for (const Input& input : inputs) all.emplace_back(input.name, input.value);
    inference.keys.emplace_back("data", hami::Value::dict(all));
  }
  for (Input& input : inputs) inference.keys.emplace_back(std::move(input.name), std::move(input.value));
}

}  // namespace

namespace {

std::string_view only_text_in(std::string_view data) {
  std::uint32_t size = 0;
  require(data.size() >= sizeof size);
  std::memcpy(&size, data.data(), sizeof size);
  data.remove_prefix(sizeof size);
  require(size == data.size());
  return data;
}

hami::Value tensor_of_bf16(const Input& input, const char* data) {
  const hami::Tensor tensor = hami::Tensor::make(input.type->type, input.shape);
  char* target = static_cast<char*>(tensor.view().data);
  for (std::int64_t i = 0; i < input.count; ++i, data += sizeof(std::uint16_t), target += sizeof(std::uint32_t)) {
    std::uint16_t half = 0;
    std::memcpy(&half, data, sizeof half);
    const std::uint32_t wide = static_cast<std::uint32_t>(half) << 16;
    std::memcpy(target, &wide, sizeof wide);
  }
  return tensor;
}

hami::Value tensor_of_bytes(const std::shared_ptr<Body>& body, const Input& input, char* data, std::size_t size) {
  require(size == static_cast<std::size_t>(input.count) * input.type->width);
  if (input.type->is_converted()) {
    require(size <= kMaxCopied);
    return tensor_of_bf16(input, data);
  }
  const auto is_flag = [](char byte) { return byte == 0 || byte == 1; };
  const bool are_flags = input.type->type.code == kDLBool;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % input.type->width == 0;
  require((aligned && !are_flags) || size <= kMaxCopied);
  const bool usable = !are_flags || std::all_of(data, data + size, is_flag);
  if (usable && aligned) return tensor_in(body, input, data);
  // Its bytes stay: the door in Python may read them.
  const hami::Tensor copy = hami::Tensor::make(input.type->type, input.shape);
  char* const target = static_cast<char*>(copy.view().data);
  if (usable)
    std::memcpy(target, data, size);
  else
    std::transform(data, data + size, target, [](char byte) { return static_cast<char>(byte != 0); });
  return copy;
}

}  // namespace

void read_elements(const std::shared_ptr<Body>& body, Input& input, char* data, std::size_t size) {
  if (input.type->is_bytes())
    input.text = only_text_in({data, size});
  else
    input.value = tensor_of_bytes(body, input, data, size);
}

void bind_inputs(std::vector<Input>& inputs, const Model& model, const Table& table, Inference& inference) {
  inference.rows = check_inputs(inputs, model);
  if (inference.priority > 0) inference.keys.emplace_back("priority", hami::Value(inference.priority));
  const auto is_bytes = [](const Input& input) { return input.type->is_bytes(); };
  if (!std::any_of(inputs.begin(), inputs.end(), is_bytes)) return set_keys(inputs, table, inference);
  require(inputs.size() == 1);
  set_text(inputs[0], model, table, inference);
}

}  // namespace hami_serve
