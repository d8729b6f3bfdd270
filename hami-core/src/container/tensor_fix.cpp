// FixTensor and ContiguousTensor: convert tensors for the next backend, with as few copies as possible.
#include <charconv>
#include <memory>
#include <optional>

#include "container/tensors.hpp"
#include "value/tensor_elements.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

constexpr std::int64_t kAnySize = -1;

// Only lossless conversions.
Tensor cast(const Tensor& given, DLDataType type) {
  const Tensor from = contiguous(given);
  const Tensor to = make_tensor(from->shape(), type);
  with_element(from->dtype(), [&](auto source) {
    using From = decltype(source);
    with_element(type, [&](auto target) {
      using To = decltype(target);
      if constexpr (casts_safely(From::kType, To::kType)) {
        constexpr std::size_t kFrom = item_size(From::kType);
        constexpr std::size_t kTo = item_size(To::kType);
        const char* in = from->data();
        char* out = to->data();
        for (std::size_t i = 0; i < from->count(); ++i)
          To::store(out + i * kTo, static_cast<typename To::number>(From::load(in + i * kFrom)));
      }
    });
  });
  return to;
}

class FixTensor final : public EachTensor {
 private:
  void init_(Init& init) override {
    if (const auto name = init.params().get<std::optional<std::string>>("dtype")) {
      dtype_ = dtype_of(*name);
      if (!dtype_)
        throw Error(ErrorCode::kConfig, "parameter \"dtype\" of FixTensor: unknown type " + in_quotes(*name));
    }
    const auto sizes = init.params().get<std::optional<std::vector<std::string>>>("shape");
    if (!sizes) return;
    shape_.emplace();
    for (const std::string& size : *sizes) shape_->push_back(read_size(size));
  }

  static std::int64_t read_size(const std::string& text) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size() || size < kAnySize)
      throw Error(ErrorCode::kConfig,
                  "parameter \"shape\" of FixTensor takes sizes from 0 on, or -1 for any, got " + in_quotes(text));
    return size;
  }

  Value apply(const Tensor& tensor) const override {
    if (shape_ && !has_shape(tensor->shape())) refuse(*tensor, ErrorCode::kRequest, "");
    if (!dtype_ || same_dtype(*dtype_, tensor->dtype())) return to_value(tensor);
    if (!casts_safely(tensor->dtype(), *dtype_))
      refuse(*tensor, ErrorCode::kDataType, "; a cast from " + dtype_name(tensor->dtype()) + " would lose values");
    return to_value(cast(tensor, *dtype_));
  }

  bool has_shape(const Shape& shape) const {
    if (shape.size() != shape_->size()) return false;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if ((*shape_)[axis] != kAnySize && (*shape_)[axis] != shape[axis]) return false;
    return true;
  }

  [[noreturn]] void refuse(const TensorObject& tensor, ErrorCode code, const std::string& why) const {
    std::string wanted = dtype_ ? dtype_name(*dtype_) : "";
    if (shape_) wanted += (wanted.empty() ? "" : " ") + show_shape(*shape_);
    throw Error(code, label() + " takes " + wanted + ", got " + show_tensor(tensor) + why);
  }

  std::optional<DLDataType> dtype_;
  std::optional<Shape> shape_;
};

class ContiguousTensor final : public EachTensor {
 private:
  Value apply(const Tensor& tensor) const override { return to_value(contiguous(tensor)); }
};

}  // namespace

void register_tensor_fixing(Registry& registry) {
  BackendClass fix;
  fix.name = "FixTensor";
  fix.doc =
      "Checks the shape of tensors and casts them to the dtype.\n"
      "A request fails if its tensor has another shape, or if the cast could lose values.";
  fix.params = parse_param_specs("shape: list? '-1: any size'; dtype: str? 'a numpy name'");
  fix.create = [] { return std::make_shared<FixTensor>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(fix)));

  BackendClass contiguous_tensor;
  contiguous_tensor.name = "ContiguousTensor";
  contiguous_tensor.doc = "Copies a tensor that is not contiguous in row-major order; others pass unchanged.";
  contiguous_tensor.create = [] { return std::make_shared<ContiguousTensor>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(contiguous_tensor)));
}

}  // namespace hami
