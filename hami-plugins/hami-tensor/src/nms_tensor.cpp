// NmsTensor and SoftNmsTensor: non-maximum suppression of the boxes of a request; and its function for Python.
#include <algorithm>
#include <array>

#include "nms.hpp"
#include "tensors.hpp"

namespace hami_tensor {
namespace {

constexpr std::array<std::string_view, 3> kKeys = {"boxes", "scores", "classes"};

// All elements as numbers of one type; the memory of the tensor itself where it has them.
template <class Number>
class Numbers {
 public:
  // False if the elements are not real numbers.
  bool read(const hami::Tensor& tensor) {
    solid_.emplace(contiguous(tensor));
    if (hami::same_dtype(tensor.dtype(), hami::dtype_of<Number>())) {
      start_ = reinterpret_cast<const Number*>(data_of(*solid_));  // the type was compared above
      return true;
    }
    copies_.resize(tensor.count());
    start_ = copies_.data();
    return hami::with_element(tensor.dtype(), [&](auto element) {
      using Element = decltype(element);
      const char* at = data_of(*solid_);
      for (Number& copy : copies_) {
        copy = static_cast<Number>(Element::load(at));
        at += hami::item_size(Element::kType);
      }
    });
  }
  const Number* start() const noexcept { return start_; }  // null before `read`

 private:
  std::optional<hami::Tensor> solid_;
  std::vector<Number> copies_;
  const Number* start_ = nullptr;
};

// The first elements of a tensor along axis 0, in an order.
hami::Tensor rows_of(const hami::Tensor& tensor, const std::vector<std::int64_t>& rows) {
  Shape shape = tensor.shape();
  const std::size_t size =
      hami::item_size(tensor.dtype()) * (shape.size() == 2 ? static_cast<std::size_t>(shape[1]) : 1);
  shape[0] = static_cast<std::int64_t>(rows.size());
  hami::Tensor made = hami::Tensor::make(tensor.dtype(), std::move(shape));
  const hami::Tensor solid = contiguous(tensor);
  char* to = data_of(made);
  for (const std::int64_t row : rows)
    to = std::copy_n(data_of(solid) + row * static_cast<std::ptrdiff_t>(size), size, to);
  return made;
}

class NmsTensor : public TensorBackend {
 protected:
  void init_(const hami::Params& params) override {
    rules_.score_threshold = params.get<double>("score_threshold");
    rules_.max_boxes = params.get<std::int64_t>("max_boxes");
    set_rule(params);
  }
  virtual void set_rule(const hami::Params& params) { rules_.iou_threshold = params.get<double>("iou_threshold"); }
  virtual NmsResult apply(const BoxSet& set) const { return suppress(set, rules_); }
  // The scores of the kept boxes.
  virtual hami::Tensor scores_of(const hami::Tensor& given, const NmsResult& result) const {
    return rows_of(given, result.indices);
  }

  NmsRules rules_;

 private:
  void forward_(hami::Batch batch) final {
    for (hami::Dict& item : batch) {
      try {
        item[kResult] = kept_of(item);
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
  }

  hami::Value kept_of(const hami::Dict& item) const {
    const std::vector<hami::Tensor> parts = read(item);
    Numbers<float> boxes;
    Numbers<double> scores;
    Numbers<double> classes;
    boxes.read(parts[0]);
    scores.read(parts[1]);
    if (parts.size() > 2 && !classes.read(parts[2])) refuse("classes " + show_tensor(parts[2]));
    BoxSet set;
    set.boxes = boxes.start();
    set.stride = static_cast<int>(parts[0].view().shape[1]);
    set.scores = scores.start();
    set.classes = classes.start();
    set.count = parts[0].view().shape[0];
    const NmsResult result = apply(set);
    if (result.nan_boxes > 0) count("nan_boxes", result.nan_boxes);
    const hami::Tensor indices = hami::Tensor::make(hami::kInt64, {static_cast<std::int64_t>(result.indices.size())});
    // `indices` was made with this type.
    std::copy(result.indices.begin(), result.indices.end(), reinterpret_cast<std::int64_t*>(data_of(indices)));
    std::vector<std::pair<std::string, hami::Value>> entries;
    for (std::size_t i = 0; i < parts.size(); ++i)
      entries.emplace_back(kKeys[i], i == 1 ? scores_of(parts[i], result) : rows_of(parts[i], result.indices));
    entries.emplace_back("indices", indices);
    return hami::Value::dict(entries);
  }

  std::vector<hami::Tensor> read(const hami::Dict& item) const {
    const std::optional<hami::Value> data = item.find(kData);
    if (!data) throw hami::Error(HAMI_REQUEST, "the request has no `data`; " + name() + " takes a dict of tensors");
    if (data->kind() != HAMI_DICT) refuse("another value");
    const TensorItems items = read_tensors(*data, name());
    std::vector<hami::Tensor> parts;
    for (const std::string_view key : kKeys) {
      const auto at = std::find(items.keys.begin(), items.keys.end(), key);
      if (at != items.keys.end())
        parts.push_back(items.tensors[static_cast<std::size_t>(at - items.keys.begin())]);
      else if (key != kKeys[2])
        refuse("no " + in_quotes(key));
    }
    const hami::Tensor& boxes = parts.front();
    if (boxes.rank() != 2 || (boxes.view().shape[1] != 4 && boxes.view().shape[1] != 5) || !is_float(boxes.dtype()))
      refuse("boxes " + show_tensor(boxes));
    for (std::size_t i = 1; i < parts.size(); ++i)
      if (parts[i].rank() != 1 || parts[i].view().shape[0] != boxes.view().shape[0] ||
          (i == 1 && !is_float(parts[i].dtype())))
        refuse(std::string(kKeys[i]) + " " + show_tensor(parts[i]));
    return parts;
  }

  [[noreturn]] void refuse(const std::string& given) const {
    throw hami::Error(HAMI_DATA_TYPE,
                      name() +
                          " takes a dict of tensors: boxes N x 4 or N x 5 and scores N of floating-point "
                          "numbers, and optionally classes N; got " +
                          given);
  }
};

class SoftNmsTensor final : public NmsTensor {
 public:
  static constexpr std::uint32_t kByDevice = 0;

 private:
  void set_rule(const hami::Params& params) override {
    sigma_ = params.get<double>("sigma");
    if (!(sigma_ > 0))
      throw hami::Error(HAMI_FAILED_PRECONDITION,
                        name() + ": sigma must be above 0, got " + std::to_string(sigma_) + "; the paper has 0.5");
  }
  NmsResult apply(const BoxSet& set) const override { return suppress_softly(set, rules_, sigma_); }
  hami::Tensor scores_of(const hami::Tensor& given, const NmsResult& result) const override {
    hami::Tensor made = hami::Tensor::make(given.dtype(), {static_cast<std::int64_t>(result.scores.size())});
    hami::with_element(given.dtype(), [&](auto element) {
      using Element = decltype(element);
      char* to = data_of(made);
      for (const double score : result.scores) {
        Element::store(to, static_cast<typename Element::number>(score));
        to += hami::item_size(Element::kType);
      }
    });
    return made;
  }

  double sigma_ = 0.5;
};

// In the order of hami_tensor/boxes.py.
struct PythonFunctions {
  // Writes at most `max_boxes` indices, and returns their number.
  std::int64_t (*nms)(const float* boxes, std::int64_t stride, const double* scores, const double* classes,
                      std::int64_t count, double iou_threshold, double score_threshold, std::int64_t max_boxes,
                      std::int64_t* indices, std::int64_t* nan_boxes);
};

constexpr std::int64_t kOutOfMemory = -1;

constexpr PythonFunctions kFunctions = {
    [](const float* boxes, std::int64_t stride, const double* scores, const double* classes, std::int64_t count,
       double iou_threshold, double score_threshold, std::int64_t max_boxes, std::int64_t* indices,
       std::int64_t* nan_boxes) -> std::int64_t {
  try {
    const NmsResult result = suppress({boxes, static_cast<int>(stride), scores, classes, count},
                                      {iou_threshold, score_threshold, max_boxes});
    std::copy(result.indices.begin(), result.indices.end(), indices);
    *nan_boxes = result.nan_boxes;
    return static_cast<std::int64_t>(result.indices.size());
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
},
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::NmsTensor, "NmsTensor",
    "iou_threshold: float = 0.45 {0..1} 'a box that overlaps a better one of its class by more is removed'"
    "; score_threshold: float = 0.25 'boxes with this score or less are removed'"
    "; max_boxes: int = 300 {1..} 'maximum number of boxes of a request'",
    "Remove boxes that overlap better ones of the same class (non-maximum suppression).\n"
    "`data` is a dict of `boxes` (N x 4: x1, y1, x2, y2, or N x 5: centre x, centre y, width, height, angle in\n"
    "radians), `scores` (N) and optionally `classes` (N). `result` has the kept rows, the best first, and their\n"
    "`indices` (int64). Of equal scores the lower index comes first; boxes with NaN are left out.");
HAMI_REGISTER(hami_tensor::SoftNmsTensor, "SoftNmsTensor",
              "sigma: float = 0.5 'the smaller, the more an overlap costs'"
              "; score_threshold: float = 0.25 'boxes with this score or less are removed'"
              "; max_boxes: int = 300 {1..} 'maximum number of boxes of a request'",
              "Lower the scores of boxes that overlap better ones of the same class (Soft-NMS, Gaussian).\n"
              "`data` and `result` are those of NmsTensor, with the lowered scores.");
HAMI_REGISTER(hami::FunctionTable<hami_tensor::kFunctions>, "TensorFunctions", "",
              "Return the address of the table of functions that hami_tensor.boxes calls.");
