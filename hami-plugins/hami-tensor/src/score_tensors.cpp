// SoftmaxTensor, L2Normalize, ArgMaxTensor and TopKTensor: operations along one axis.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tensors.hpp"

namespace hami_tensor {
namespace {

// The elements of a tensor along one axis: start, step and count.
struct Line {
  char* first;
  std::ptrdiff_t step;  // in bytes

  char* at(std::size_t index) const noexcept { return first + static_cast<std::ptrdiff_t>(index) * step; }
};

// All lines of a tensor along `axis`, in the order of the other axes, with any strides.
class Lines {
 public:
  Lines(const hami::Tensor& tensor, std::size_t axis) : tensor_(tensor), axis_(axis), position_(tensor.rank()) {
    count_ = 1;
    for (std::size_t other = 0; other < tensor.rank(); ++other)
      if (other != axis) count_ *= static_cast<std::size_t>(tensor.view().shape[other]);
  }

  std::size_t count() const noexcept { return count_; }
  Line current() const noexcept { return {data_of(tensor_) + offset_, bytes(axis_)}; }

  // Like an odometer: the last axis advances first.
  void advance() noexcept {
    for (std::size_t axis = tensor_.rank(); axis-- > 0;) {
      if (axis == axis_) continue;
      offset_ += bytes(axis);
      if (++position_[axis] < tensor_.view().shape[axis]) return;
      offset_ -= bytes(axis) * position_[axis];
      position_[axis] = 0;
    }
  }

 private:
  std::ptrdiff_t bytes(std::size_t axis) const noexcept {
    return tensor_.view().strides[axis] * static_cast<std::ptrdiff_t>(hami::item_size(tensor_.dtype()));
  }

  const hami::Tensor& tensor_;
  std::size_t axis_;
  Shape position_;
  std::ptrdiff_t offset_ = 0;
  std::size_t count_ = 0;
};

constexpr const char* kFloats = "floating point numbers (float16, bfloat16, float32, float64)";

// Base class: the axis, and the check for real number types.
class Scores : public EachTensor {
 protected:
  std::size_t axis(const hami::Tensor& tensor) const { return axis_of(tensor, axis_, name()); }
  std::size_t length(const hami::Tensor& tensor) const {
    return static_cast<std::size_t>(tensor.view().shape[axis(tensor)]);
  }
  // The shape of `tensor` with another length along the axis.
  Shape shape_with(const hami::Tensor& tensor, std::size_t length) const {
    Shape shape = tensor.shape();
    shape[axis(tensor)] = static_cast<std::int64_t>(length);
    return shape;
  }
  [[noreturn]] void refuse(const hami::Tensor& tensor, const char* taken) const {
    throw hami::Error(HAMI_DATA_TYPE, name() + " takes " + taken + ", got " + show_tensor(tensor));
  }
  std::string show_axis() const { return "axis " + std::to_string(axis_); }

  void init_(const hami::Params& params) override { axis_ = params.get<std::int64_t>("axis"); }

 private:
  std::int64_t axis_ = -1;
};

class SoftmaxTensor final : public Scores {
 private:
  hami::Value apply(const hami::Tensor& tensor) const override {
    hami::Tensor made = hami::Tensor::make(tensor.dtype(), tensor.shape());
    bool taken = false;
    hami::with_element(tensor.dtype(), [&](auto element) {
      if constexpr (decltype(element)::kIsFloat) {
        taken = true;
        fill<decltype(element)>(tensor, made);
      }
    });
    if (!taken) refuse(tensor, kFloats);
    return made;
  }

  template <class Element>
  void fill(const hami::Tensor& tensor, const hami::Tensor& made) const {
    using Number = typename Element::number;
    const std::size_t along = axis(tensor);
    const std::size_t size = length(tensor);
    if (tensor.count() == 0) return;
    std::vector<Number> powers(size);
    Lines from(tensor, along);
    Lines to(made, along);
    for (std::size_t line = 0; line < from.count(); ++line, from.advance(), to.advance()) {
      const Line in = from.current();
      const Line out = to.current();
      for (std::size_t i = 0; i < size; ++i) powers[i] = Element::load(in.at(i));
      const Number most = *std::max_element(powers.begin(), powers.end());  // so that no power overflows
      Number sum = 0;
      for (Number& power : powers) sum += power = std::exp(power - most);
      for (std::size_t i = 0; i < size; ++i) Element::store(out.at(i), powers[i] / sum);
    }
  }
};

class L2Normalize final : public Scores {
 private:
  static constexpr double kShortest = 1e-12;  // a shorter vector is divided by it, as in torch.nn.functional.normalize

  hami::Value apply(const hami::Tensor& tensor) const override {
    const hami::Tensor made = hami::Tensor::make(hami::kFloat32, tensor.shape());
    const std::size_t along = axis(tensor);
    bool taken = false;
    hami::with_element(tensor.dtype(), [&](auto element) {
      if constexpr (decltype(element)::kIsFloat) {
        taken = true;
        fill<decltype(element)>(tensor, made, along);
      }
    });
    if (!taken) refuse(tensor, kFloats);
    return made;
  }

  // In float64: the squares of large numbers do not fit float32.
  template <class Element>
  void fill(const hami::Tensor& tensor, const hami::Tensor& made, std::size_t along) const {
    if (tensor.count() == 0) return;
    const std::size_t size = length(tensor);
    std::vector<double> numbers(size);
    Lines from(tensor, along);
    Lines to(made, along);
    for (std::size_t line = 0; line < from.count(); ++line, from.advance(), to.advance()) {
      double squares = 0;
      for (std::size_t i = 0; i < size; ++i) {
        numbers[i] = Element::load(from.current().at(i));
        squares += numbers[i] * numbers[i];
      }
      const double divisor = std::max(std::sqrt(squares), kShortest);
      for (std::size_t i = 0; i < size; ++i) {
        const float number = static_cast<float>(numbers[i] / divisor);
        std::memcpy(to.current().at(i), &number, sizeof number);
      }
    }
  }
};

// True if `a` comes before `b`: NaN first, then by size, the earlier of equals first.
template <class Number>
bool is_above(Number a, Number b) noexcept {
  if constexpr (std::is_floating_point_v<Number>)
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

class ArgMaxTensor final : public Scores {
 private:
  hami::Value apply(const hami::Tensor& tensor) const override {
    const std::size_t along = axis(tensor);
    if (length(tensor) == 0)
      throw hami::Error(HAMI_REQUEST, name() + ": " + show_axis() + " of " + show_tensor(tensor) + " is empty");
    Shape shape = tensor.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(along));
    const hami::Tensor made = hami::Tensor::make(hami::kInt64, std::move(shape));
    auto* to = reinterpret_cast<std::int64_t*>(data_of(made));  // made with this type
    const bool taken = hami::with_element(tensor.dtype(), [&](auto element) {
      Lines lines(tensor, along);
      for (std::size_t line = 0; line < lines.count(); ++line, lines.advance())
        to[line] = best<decltype(element)>(lines.current(), length(tensor));
    });
    if (!taken) refuse(tensor, "real numbers");
    return made;
  }

  template <class Element>
  static std::int64_t best(const Line& line, std::size_t size) noexcept {
    std::size_t best = 0;
    auto most = Element::load(line.at(0));
    for (std::size_t i = 1; i < size; ++i) {
      const auto number = Element::load(line.at(i));
      if (!is_above(number, most)) continue;
      best = i;
      most = number;
    }
    return static_cast<std::int64_t>(best);
  }
};

class TopKTensor final : public Scores {
 private:
  void init_(const hami::Params& params) override {
    Scores::init_(params);
    k_ = static_cast<std::size_t>(params.get<std::int64_t>("k"));
  }

  hami::Value apply(const hami::Tensor& tensor) const override {
    if (k_ > length(tensor))
      throw hami::Error(HAMI_REQUEST, name() + ": k is " + std::to_string(k_) + ", and " + show_axis() + " of " +
                                          show_tensor(tensor) + " has " + std::to_string(length(tensor)));
    const hami::Tensor values = hami::Tensor::make(tensor.dtype(), shape_with(tensor, k_));
    const hami::Tensor indices = hami::Tensor::make(hami::kInt64, shape_with(tensor, k_));
    const bool taken =
        hami::with_element(tensor.dtype(), [&](auto element) { fill<decltype(element)>(tensor, values, indices); });
    if (!taken) refuse(tensor, "real numbers");
    return hami::Value::dict({{"values", values}, {"indices", indices}});
  }

  template <class Element>
  void fill(const hami::Tensor& tensor, const hami::Tensor& values, const hami::Tensor& indices) const {
    const std::size_t along = axis(tensor);
    const std::size_t size = length(tensor);
    std::vector<typename Element::number> numbers(size);
    std::vector<std::int64_t> order(size);
    Lines from(tensor, along);
    Lines to_values(values, along);
    Lines to_indices(indices, along);
    for (std::size_t line = 0; line < from.count(); ++line, from.advance(), to_values.advance(), to_indices.advance()) {
      for (std::size_t i = 0; i < size; ++i) numbers[i] = Element::load(from.current().at(i));
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k_), order.end(),
                        [&](std::int64_t a, std::int64_t b) {
        const auto left = numbers[static_cast<std::size_t>(a)];
        const auto right = numbers[static_cast<std::size_t>(b)];
        return is_above(left, right) || (a < b && !is_above(right, left));
      });
      for (std::size_t i = 0; i < k_; ++i) {
        Element::store(to_values.current().at(i), numbers[static_cast<std::size_t>(order[i])]);
        std::memcpy(to_indices.current().at(i), &order[i], sizeof order[i]);
      }
    }
  }

  std::size_t k_ = 1;
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::L2Normalize, "L2Normalize", "axis: int = -1 'negative: from the end'",
    "Divides vectors along `axis` by their length, the root of the sum of squares. The result is float32; vectors of "
    "zeros stay.");
HAMI_REGISTER(hami_tensor::SoftmaxTensor, "SoftmaxTensor", "axis: int = -1 'negative: from the end'",
              "Softmax along `axis`. The dtype stays; float16 is computed as float32.");
HAMI_REGISTER(
    hami_tensor::ArgMaxTensor, "ArgMaxTensor", "axis: int = -1 'negative: from the end'",
    "The index (int64) of the largest element along `axis`, which is removed; the first of equal elements, NaN first.");
HAMI_REGISTER(hami_tensor::TopKTensor, "TopKTensor",
              "k: int {1..} 'number of elements'; axis: int = -1 'negative: from the end'",
              "The `k` largest elements along `axis`, largest first: a dict of `values` and `indices` (int64).\n"
              "The first of equal elements comes first; NaN counts as the largest.");
