// Shared by the tensor backends, which compute in CPU memory: `data` that is a tensor, or a list or dict of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/init.hpp"
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

// Base class of backends that map each tensor to a value. A request with unsuitable tensors fails alone.
class EachTensor : public Backend {
 private:
  void forward_(Batch batch) final;
  virtual Value apply(const Tensor& tensor) const = 0;
};

// The axis that a parameter names, counted from the end if negative; Error(kRequest) if the tensor has no such axis.
std::size_t axis_of(const TensorObject& tensor, std::int64_t axis, const std::string& taker);

}  // namespace hami
