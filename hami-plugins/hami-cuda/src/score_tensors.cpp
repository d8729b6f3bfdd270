// SoftmaxTensor, ArgMaxTensor and TopKTensor. The core hands data on CUDA devices to the backends of these names.
#include "cuda_backend.hpp"

namespace hami_cuda {
namespace {

// Maps each tensor of a batch along `axis`, with one launch.
class ScoreTensor : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;

 protected:
  using CudaBackend::CudaBackend;

  struct Part {
    hami::Tensor tensor;
    std::size_t axis;
    hami_cuda_lines lines{};
    // Of the results in the memory of the batch.
    std::size_t values = 0;
    std::size_t indices = 0;

    Shape shape_with(std::int64_t length) const {
      Shape shape = tensor.shape();
      shape[axis] = length;
      return shape;
    }
  };

  void setup(const hami::Params& params) override { axis_ = params.get<std::int64_t>("axis"); }

  [[noreturn]] void refuse(const hami::Tensor& given, const std::string& taken) const {
    throw hami::Error(HAMI_DATA_TYPE, name() + " takes " + taken + ", got " + show(given));
  }
  [[noreturn]] void refuse_length(const Part& part, const std::string& why) const {
    throw hami::Error(HAMI_REQUEST,
                      name() + ": " + why + "axis " + std::to_string(axis_) + " of " + show(part.tensor) +
                          (part.lines.length == 0 ? " is empty" : " has " + std::to_string(part.lines.length)));
  }

 private:
  // Completes the description of a part, and adds its results to the layout. Throws hami::Error if it is not accepted.
  virtual void describe(Part& part, Layout& layout) const = 0;
  virtual void launch(const std::vector<hami_cuda_lines>& tensors) const = 0;
  virtual hami::Value result_of(const Part& part, const std::shared_ptr<Memory>& memory) const = 0;

  Part accept(const hami::Value& value, Layout& layout) {
    Part part{tensor(value), 0};
    const auto rank = static_cast<std::int64_t>(part.tensor.rank());
    if (axis_ < -rank || axis_ >= rank)
      throw hami::Error(HAMI_REQUEST, name() + " works along axis " + std::to_string(axis_) + ", which " +
                                          show(part.tensor) + " does not have");
    part.axis = static_cast<std::size_t>(axis_ < 0 ? axis_ + rank : axis_);
    const std::optional<hami_cuda_number> type = number_of(part.tensor.dtype());
    if (!type) refuse(part.tensor, "real numbers");
    part.lines.type = *type;
    part.lines.length = part.tensor.view().shape[part.axis];
    part.lines.step = 1;
    part.lines.count = 1;
    for (std::size_t axis = 0; axis < part.tensor.rank(); ++axis) {
      if (axis > part.axis) part.lines.step *= part.tensor.view().shape[axis];
      if (axis != part.axis) part.lines.count *= part.tensor.view().shape[axis];
    }
    describe(part, layout);
    return part;
  }

  void run(hami::Batch batch) final {
    struct Request {
      hami::Dict item;
      hami::Value data;
      std::vector<Part> parts;
    };
    std::vector<Request> requests;
    Layout layout;
    for_each(batch, [&](const hami::Dict& item) {
      Request request{item, data_of(item, name()), {}};
      map_parts(request.data, [&](const hami::Value& part) {
        request.parts.push_back(accept(part, layout));
        return hami::Value();
      });
      requests.push_back(std::move(request));
    });
    if (requests.empty()) return;
    const std::shared_ptr<Memory> memory = allocate(layout.size());
    std::vector<hami::Tensor> given;
    for (const Request& request : requests)
      for (const Part& part : request.parts) given.push_back(part.tensor);
    make_contiguous(given);
    std::vector<hami_cuda_lines> tensors;
    std::size_t next = 0;
    for (Request& request : requests)
      for (Part& part : request.parts) {
        part.lines.data = given[next++].view().data;
        part.lines.values = reinterpret_cast<void*>(memory->start() + part.values);
        part.lines.indices = reinterpret_cast<long long*>(memory->start() + part.indices);  // an address of the device
        if (part.lines.count > 0 && part.lines.length > 0) tensors.push_back(part.lines);
      }
    if (!tensors.empty()) launch(tensors);
    for (const Request& request : requests) {
      std::size_t at = 0;
      request.item["result"] =
          map_parts(request.data, [&](const hami::Value&) { return result_of(request.parts[at++], memory); });
    }
  }

  std::int64_t axis_ = -1;
};

class SoftmaxTensor final : public ScoreTensor {
 public:
  static constexpr const char* kForDevice = "cuda";
  SoftmaxTensor() : ScoreTensor("SoftmaxTensor") {}

 private:
  void describe(Part& part, Layout& layout) const override {
    if (part.lines.type < HAMI_CUDA_FLOAT16)
      refuse(part.tensor, "floating point numbers (float16, bfloat16, float32, float64)");
    part.values = layout.add(part.tensor.nbytes());
  }
  void launch(const std::vector<hami_cuda_lines>& tensors) const override {
    device().kernels().softmax(*stream(), tensors);
  }
  hami::Value result_of(const Part& part, const std::shared_ptr<Memory>& memory) const override {
    return device_tensor(memory, part.values, part.tensor.dtype(), part.tensor.shape());
  }
};

class ArgMaxTensor final : public ScoreTensor {
 public:
  static constexpr const char* kForDevice = "cuda";
  ArgMaxTensor() : ScoreTensor("ArgMaxTensor") {}

 private:
  void describe(Part& part, Layout& layout) const override {
    if (part.lines.length == 0) refuse_length(part, "");
    part.lines.kept = 1;
    part.indices = layout.add(static_cast<std::size_t>(part.lines.count) * sizeof(std::int64_t));
  }
  void launch(const std::vector<hami_cuda_lines>& tensors) const override {
    std::vector<hami_cuda_lines> without_values = tensors;
    for (hami_cuda_lines& each : without_values) each.values = nullptr;
    device().kernels().top(*stream(), without_values);
  }
  hami::Value result_of(const Part& part, const std::shared_ptr<Memory>& memory) const override {
    Shape shape = part.tensor.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(part.axis));
    return device_tensor(memory, part.indices, kIndex, std::move(shape));
  }
};

class TopKTensor final : public ScoreTensor {
 public:
  static constexpr const char* kForDevice = "cuda";
  TopKTensor() : ScoreTensor("TopKTensor") {}

 private:
  void setup(const hami::Params& params) override {
    ScoreTensor::setup(params);
    k_ = params.get<std::int64_t>("k");
  }
  void describe(Part& part, Layout& layout) const override {
    if (k_ > part.lines.length) refuse_length(part, "k is " + std::to_string(k_) + ", and ");
    part.lines.kept = k_;
    const auto count = static_cast<std::size_t>(part.lines.count * k_);
    part.values = layout.add(count * item_size(part.tensor.dtype()));
    part.indices = layout.add(count * sizeof(std::int64_t));
  }
  void launch(const std::vector<hami_cuda_lines>& tensors) const override {
    device().kernels().top(*stream(), tensors);
  }
  hami::Value result_of(const Part& part, const std::shared_ptr<Memory>& memory) const override {
    const Shape shape = part.shape_with(k_);
    return hami::Value::dict({{"values", device_tensor(memory, part.values, part.tensor.dtype(), shape)},
                              {"indices", device_tensor(memory, part.indices, kIndex, shape)}});
  }

  std::int64_t k_ = 1;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(hami_cuda::SoftmaxTensor, "SoftmaxTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
              "; axis: int = -1 'negative: from the end'",
              "Softmax along `axis`. The dtype stays; float16 and bfloat16 are computed as float32.\n"
              "\n"
              "`data` is a tensor on the device, or a list or dict of tensors. The core hands data on CUDA devices to "
              "this backend.");
HAMI_REGISTER(hami_cuda::ArgMaxTensor, "ArgMaxTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
              "; axis: int = -1 'negative: from the end'",
              "The index (int64) of the largest element along `axis`, which is removed; the first of equal elements, "
              "NaN first.\n"
              "\n"
              "`data` is a tensor on the device, or a list or dict of tensors. The core hands data on CUDA devices to "
              "this backend.");
HAMI_REGISTER(
    hami_cuda::TopKTensor, "TopKTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; k: int {1..} 'number of elements'; axis: int = -1 'negative: from the end'",
    "The `k` largest elements along `axis`, largest first: a dict of `values` and `indices` (int64).\n"
    "\n"
    "The first of equal elements comes first; NaN counts as the largest. `data` is a tensor on the device, or "
    "a list\n"
    "or dict of tensors. The core hands data on CUDA devices to this backend.");
