// FixTensor and ContiguousTensor: convert tensors for the next backend, with as few copies as possible.
#include <algorithm>
#include <charconv>
#include <optional>

#include "engine_inputs.hpp"
#include "tensors.hpp"

namespace hami_tensor {
namespace {

hami::Tensor cast(const hami::Tensor& given, DLDataType type) {
  const hami::Tensor from = contiguous(given);
  const hami::Tensor to = hami::Tensor::make(type, from.shape());
  hami::with_element(from.dtype(), [&](auto source) {
    using From = decltype(source);
    hami::with_element(type, [&](auto target) {
      using To = decltype(target);
      if constexpr (hami::casts_safely(From::kType, To::kType) || (From::kIsFloat && To::kIsFloat)) {
        constexpr std::size_t kFrom = hami::item_size(From::kType);
        constexpr std::size_t kTo = hami::item_size(To::kType);
        const char* in = data_of(from);
        char* out = data_of(to);
        for (std::size_t i = 0; i < from.count(); ++i)
          To::store(out + i * kTo, static_cast<typename To::number>(From::load(in + i * kFrom)));
      }
    });
  });
  return to;
}

// A view whose axis `i` is axis `order[i]` of the tensor.
hami::Tensor permuted(const hami::Tensor& tensor, const std::vector<std::size_t>& order) {
  Shape shape;
  Shape strides;
  for (const std::size_t axis : order) {
    shape.push_back(tensor.view().shape[axis]);
    strides.push_back(tensor.view().strides[axis]);
  }
  return make_view(tensor, std::move(shape), std::move(strides));
}

// The tensor if the input takes its shape, else images with channels last as channels first, or the reverse, if the input
// takes those; nothing if it takes none.
std::optional<hami::Tensor> arranged(const hami::Tensor& tensor, const EngineInput& input) {
  if (input.takes(tensor.shape())) return tensor;
  if (tensor.rank() != 4) return std::nullopt;
  for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 3, 1, 2}, {0, 2, 3, 1}})
    if (hami::Tensor turned = permuted(tensor, order); input.takes(turned.shape())) return turned;
  return std::nullopt;
}

class FixTensor final : public EachTensor {
 public:
  static constexpr std::uint32_t kByDevice = HAMI_EACH_REQUEST_BY_ENGINE;

 private:
  void init_(const hami::Params& params) override {
    engine_ = read_engine_inputs(options());
    std::vector<std::string> names;
    for (const EngineInput& input : engine_) names.push_back(input.name);
    const auto chosen = params.get<std::vector<std::string>>("inputs");
    has_keys_ = !engine_.empty() || !chosen.empty();
    keys_ = hami::ModelKeys("FixTensor", engine_.empty() ? chosen : names, {}, chosen);
    if (const auto name = params.get<std::optional<std::string>>("dtype")) {
      dtype_ = hami::dtype_of(*name);
      if (!dtype_)
        throw hami::Error(HAMI_FAILED_PRECONDITION,
                          "parameter \"dtype\" of FixTensor: unknown type " + in_quotes(*name));
    }
    exact_ = params.get<std::optional<bool>>("exact").value_or(dtype_.has_value());
    const auto sizes = params.get<std::optional<std::vector<std::string>>>("shape");
    if (!sizes) return;
    shape_.emplace();
    for (const std::string& size : *sizes) shape_->push_back(read_size(size));
  }

  static std::int64_t read_size(const std::string& text) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size() || size < kAnySize)
      throw hami::Error(
          HAMI_FAILED_PRECONDITION,
          "parameter \"shape\" of FixTensor takes sizes from 0 on, or -1 for any, got " + in_quotes(text));
    return size;
  }

  TensorItems read(const hami::Dict& item) const override {
    return has_keys_ ? read_tensors(keys_.data_of(item), name()) : read_tensors(item, name());
  }

  std::vector<hami::Value> apply_to(const hami::Dict& item, const TensorItems& items) const override {
    const std::vector<EngineInput> inputs = targets(items);
    const bool is_row = !shape_ && !inputs.empty() && is_row_of(items, inputs);
    std::vector<hami::Value> values;
    for (std::size_t i = 0; i < items.tensors.size(); ++i) {
      const hami::Tensor& given = items.tensors[i];
      EngineInput target;
      if (!inputs.empty()) target = inputs[i];
      if (shape_) target.shape = *shape_;
      if (dtype_ || inputs.empty()) target.dtype = dtype_.value_or(given.dtype());
      values.push_back(fitted(is_row ? with_row_axis(given) : given, given, target));
    }
    if (is_row)
      item[kTensorRows] = kWithoutBatchAxis;
    else
      item.erase(kTensorRows);
    return values;
  }

  // The inputs of the engine for the tensors, in their order; empty without an engine, or if the parameters replace it.
  std::vector<EngineInput> targets(const TensorItems& items) const {
    if (engine_.empty() || (shape_ && dtype_)) return {};
    if (items.form != HAMI_DICT) {
      if (items.tensors.size() == engine_.size()) return engine_;
    } else if (items.keys.size() == engine_.size()) {
      std::vector<EngineInput> found;
      for (const std::string& key : items.keys)
        for (const EngineInput& input : engine_)
          if (input.name == key) found.push_back(input);
      if (found.size() == engine_.size()) return found;
    }
    std::string names;
    for (const EngineInput& input : engine_) names += (names.empty() ? "" : ", ") + input.name;
    throw hami::Error(HAMI_REQUEST, name() + ": the engine has the inputs [" + names + "], got " + items.show_form());
  }

  // True if every tensor lacks just the batch axis.
  static bool is_row_of(const TensorItems& items, const std::vector<EngineInput>& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].has_batch_axis || !inputs[i].shape || items.tensors[i].rank() + 1 != inputs[i].shape->size())
        return false;
    return true;
  }

  // `given` is the tensor as the request has it, for messages. The shape of a parameter is only checked.
  hami::Tensor fitted(const hami::Tensor& tensor, const hami::Tensor& given, const EngineInput& target) const {
    EngineInput strict = target;
    if (shape_) strict.has_batch_axis = false;
    std::optional<hami::Tensor> shaped = tensor;
    if (!shape_) shaped = arranged(tensor, target);
    if (!shaped || (shape_ && !strict.takes(tensor.shape()))) refuse(given, target, HAMI_REQUEST, "");
    if (hami::same_dtype(shaped->dtype(), target.dtype)) return *shaped;
    const bool rounds = !exact_ && is_float(shaped->dtype()) && is_float(target.dtype);
    if (!rounds && !hami::casts_safely(shaped->dtype(), target.dtype))
      refuse(given, target, HAMI_DATA_TYPE, "; a cast from " + hami::dtype_name(given.dtype()) + " would lose values");
    return cast(*shaped, target.dtype);
  }

  [[noreturn]] void refuse(const hami::Tensor& given, const EngineInput& target, std::int32_t code,
                           const std::string& why) const {
    std::string wanted;
    if (dtype_ || !target.name.empty()) wanted = hami::dtype_name(target.dtype);
    if (target.shape) wanted += (wanted.empty() ? "" : " ") + show_shape(*target.shape);
    if (!target.name.empty()) wanted += " for input " + in_quotes(target.name) + " of the engine";
    throw hami::Error(code, name() + " takes " + wanted + ", got " + show_tensor(given) + why);
  }

  std::vector<EngineInput> engine_;
  hami::ModelKeys keys_;  // where the inputs of the engine are in a request
  bool has_keys_ = false;
  std::optional<DLDataType> dtype_;
  std::optional<Shape> shape_;
  bool exact_ = true;
};

class ContiguousTensor final : public EachTensor {
 private:
  hami::Value apply(const hami::Tensor& tensor) const override { return contiguous(tensor); }
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::FixTensor, "FixTensor",
    "shape: list? '-1: any size'; dtype: str? 'a numpy name'; exact: bool? 'whether to refuse casts that round "
    "floating-point numbers; default: true with `dtype`, else false';"
    "inputs: list = '' 'read each input of the engine from the key of its name: the names of all; default: if there is no "
    "`data`'",
    "Makes tensors fit the engine of the instance, or checks their shape and casts them to the dtype.\n"
    "An engine announces its inputs: FixTensor casts, moves and permutes the data, and adds the batch axis. Parameters\n"
    "replace what the engine says. A request fails if its tensor does not fit.");
HAMI_REGISTER(hami_tensor::ContiguousTensor, "ContiguousTensor", "",
              "Copies a tensor that is not contiguous in row-major order; others pass unchanged.");
