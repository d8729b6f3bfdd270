// Shared by the tensor backends, which compute in CPU memory: `data` that is a tensor, or a list or dict of tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/by_device.hpp"
#include "registry/registry.hpp"
#include "value/tensor.hpp"

namespace hami {

void register_tensors(Registry& registry);

// The tensors in `data` of a request: one, or those of a list or dict. Results have the same form.
struct TensorItems {
  Kind form = Kind::kTensor;      // or kList, kDict
  std::vector<std::string> keys;  // of a dict
  std::vector<Tensor> tensors;

  // The name of one of them, for messages: "`data`", "element 1 of `data`", "\"boxes\" of `data`".
  std::string name(std::size_t index) const;
  bool same_form(const TensorItems& other) const;
  std::string show_form() const;  // "a tensor", "a list of 2 tensors", "a dict of tensors (boxes, scores)"
  // Values in the same form, one for each tensor.
  Value with(std::vector<Value> values) const;
};

// `taker` is the backend's label, for messages. Error(kRequest) without `data`, Error(kDataType) for other types.
TensorItems read_tensors(const Request& request, const std::string& taker);

// Registers a backend; data in device memory goes to the implementation of its name for the device.
template <class T>
void add_tensor_backend(Registry& registry, DeviceChoice choice, const char* name, const char* doc,
                        const char* params = "") {
  BackendClass cls;
  cls.name = name;
  cls.doc = doc;
  cls.params = parse_param_specs(params);
  cls.traits.lightweight = true;
  cls.by_device = choice;
  cls.create = [choice] { return choose_by_device(choice, std::make_shared<T>()); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

// Base class of backends that map each tensor to a value. A request with unsuitable tensors fails alone.
class EachTensor : public Backend {
 private:
  void forward_(Batch batch) final;
  virtual std::vector<Value> apply_to(Request& request, const TensorItems& items) const;
  virtual Value apply(const Tensor& tensor) const { return to_value(tensor); }
};

// A view with an axis of length 1 in front.
Tensor with_row_axis(const Tensor& tensor);

// The rows of a request in a concatenated tensor are its `request_size` or, if it has none, those of its own tensors. The
// key `tensor_rows` passes them from FixTensor and CatTensor to SplitTensor, which removes it. The caller's dict does not
// get it.
inline constexpr std::string_view kTensorRows = "tensor_rows";
inline constexpr std::int64_t kWithoutBatchAxis = -1;  // one row, and its tensors had no batch axis
void set_tensor_rows(Request& request, std::int64_t rows);
void clear_tensor_rows(Request& request);
std::optional<std::int64_t> tensor_rows(const Request& request);
// The number of rows, also of a request without the key.
std::size_t count_rows(const Request& request);

// The axis that a parameter names, counted from the end if negative; Error(kRequest) if the tensor has no such axis.
std::size_t axis_of(const TensorObject& tensor, std::int64_t axis, const std::string& taker);

}  // namespace hami
