// CapturedModel, and the backend of that name, which runs requests with its graphs.
#include "captured_model.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "cuda_backend.hpp"

namespace hami_cuda {

Region::Region(const DLTensor& tensor)
    : start(reinterpret_cast<CUdeviceptr>(tensor.data) + tensor.byte_offset),
      type(tensor.dtype),
      shape(tensor.shape, tensor.shape + tensor.ndim),
      strides(tensor.strides, tensor.strides + tensor.ndim) {}

DLTensor Region::rows(std::int64_t first, std::int64_t count) {
  shape[0] = count;
  const auto step = strides[0] * static_cast<std::int64_t>(item_size(type));
  return {reinterpret_cast<void*>(start + static_cast<CUdeviceptr>(first * step)),
          {kDLCUDA, 0},
          static_cast<std::int32_t>(shape.size()),
          type,
          shape.data(),
          strides.data(),
          0};
}

CapturedModel::CapturedModel(const Device& device, const DLTensor& input, Rules rules)
    : device_(device), input_(input), rules_(rules), axes_(static_cast<std::size_t>(input.ndim) - 1) {
  std::iota(axes_.begin(), axes_.end(), 1);
  std::stable_sort(axes_.begin(), axes_.end(),
                   [&](int one, int other) { return input.strides[one] > input.strides[other]; });
  std::int64_t expected = 1;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); expected *= input.shape[*axis++])
    if (input.shape[*axis] != 1 && input.strides[*axis] != expected) expected = -1;
  if (expected < 0 || input.strides[0] != expected)
    throw hami::Error(HAMI_DATA_TYPE, "the rows of the input of a captured model must be dense in memory");
}

std::pair<const std::int64_t, CapturedModel::Graph>* CapturedModel::graph_for(std::int64_t rows) {
  const auto found = rules_.pads ? graphs_.lower_bound(rows) : graphs_.find(rows);
  return found == graphs_.end() ? nullptr : &*found;
}

bool CapturedModel::count_joined() {
  if (rules_.watch_every > 0 && joined_ + 1 >= rules_.watch_every) {
    joined_ = 0;
    return false;
  }
  ++joined_;
  ++untaken_;
  return true;
}

std::int64_t CapturedModel::take_joined() { return std::exchange(untaken_, 0); }

void CapturedModel::enter(CUstream stream) {
  mutex_.lock();  // until leave(), which unlocks; `enter` unlocks it if it throws
  try {
    if (last_ && *last_ != stream) {
      Event done(device_);
      done.record(*last_);
      done.hold_back(stream);
    }
  } catch (...) {
    mutex_.unlock();  // taken above
    throw;
  }
}

void CapturedModel::leave(CUstream stream) noexcept {
  last_ = stream;
  mutex_.unlock();  // taken by enter()
}

CapturedModels& CapturedModels::get() {
  static CapturedModels& models = *new CapturedModels;
  return models;
}

std::int64_t CapturedModels::add(std::shared_ptr<CapturedModel> model) {
  const std::lock_guard<std::mutex> lock(mutex_);
  models_[++last_] = std::move(model);
  return last_;
}

std::shared_ptr<CapturedModel> CapturedModels::find(std::int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(number);
  if (found == models_.end())
    throw hami::Error(HAMI_NOT_FOUND, "no captured model has the number " + std::to_string(number));
  return found->second;
}

void CapturedModels::remove(std::int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  models_.erase(number);
}

namespace {

// Results are put into one block of memory until it has so many bytes: about what a kept result may keep in addition to its own.
constexpr std::size_t kSharedBlock = 32U << 10;

// Requests with other data are left to the backend that captured the model: other shapes and types, more rows than any graph has.
class CapturedModelBackend final : public CudaBackend {
 public:
  CapturedModelBackend() : CudaBackend("CapturedModel") {}

 private:
  struct Part {
    hami::Dict item;
    hami::Tensor data;
    std::int64_t rows;
    bool is_row;      // without the batch axis, as its result
    bool is_foreign;  // of another package, and ordered with the default stream
  };

  // Calls `enter` and `leave`.
  class Use {
   public:
    Use(CapturedModel& model, CUstream stream) : model_(model), stream_(stream) { model.enter(stream); }
    ~Use() { model_.leave(stream_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    CapturedModel& model_;
    const CUstream stream_;
  };

  void setup(const hami::Params& params) override {
    model_ = CapturedModels::get().find(params.get<std::int64_t>("model"));
  }

  void run(hami::Batch batch) override {
    const Use use(*model_, stream()->raw());
    std::vector<Part> parts;
    std::int64_t rows = 0;
    for (const hami::Dict& item : batch)
      if (std::optional<Part> part = read(item)) {
        rows += part->rows;
        parts.push_back(std::move(*part));
      }
    if (parts.empty()) return;
    auto* const graph = model_->graph_for(rows);
    if (!graph || (parts.size() > 1 && !model_->count_joined())) return;
    if (std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_foreign; })) {
      Event made(stream()->device());  // one for all of the batch
      made.record(reinterpret_cast<CUstream>(kDefaultStream));
      made.hold_back(stream()->raw());
    }
    gather(parts, rows, graph->first);
    stream()->driver().check(stream()->api().graph_launch(graph->second.launch, stream()->raw()),
                             "cannot launch a graph");
    split(parts, graph->second.output);
    count("graph_runs");
    count("graph_padding", graph->first - rows);
  }

  std::optional<Part> read(const hami::Dict& item) {
    if (item.contains("tensor_rows")) return std::nullopt;  // of several requests, as CatTensor makes it
    const std::optional<hami::Value> data = item.find("data");
    if (!data || (data->kind() != HAMI_TENSOR && data->kind() != HAMI_OPAQUE)) return std::nullopt;
    const bool is_foreign = data->kind() == HAMI_OPAQUE;
    std::optional<hami::Tensor> found = is_foreign ? foreign(*data) : any_tensor(*data);
    if (!found) return std::nullopt;
    hami::Tensor& given = *found;
    const Region& input = model_->input();
    const std::size_t rank = input.shape.size();
    const bool is_row = model_->rules().takes_rows && given.rank() + 1 == rank;
    if ((!is_row && given.rank() != rank) || !same_type(given.dtype(), input.type)) return std::nullopt;
    if (given.device().device_type != kDLCUDA || given.device().device_id != place().device_id) return std::nullopt;
    if (!std::equal(input.shape.begin() + 1, input.shape.end(), given.view().shape + (is_row ? 0 : 1)))
      return std::nullopt;
    const std::int64_t rows = is_row ? 1 : given.view().shape[0];
    if (rows < 1) return std::nullopt;
    if (item.contains("request_size") && static_cast<std::int64_t>(item.request_size()) != rows) return std::nullopt;
    return Part{item, std::move(given), rows, is_row, is_foreign};
  }

  // An object of another package as a tensor that is ordered with the default stream, which a stream waits for once in a batch.
  std::optional<hami::Tensor> foreign(const hami::Value& value) {
    try {
      hami::Tensor found = hami::Tensor::on_device(value, kDefaultStream);
      keep(found);  // its owner does not know when this stream has read it
      return found;
    } catch (const hami::Error& error) {
      if (error.code() != HAMI_DATA_TYPE) throw;
      return std::nullopt;
    }
  }

  // Copies the rows to the input, in the order of its memory, and clears those behind them, up to `captured`.
  void gather(const std::vector<Part>& parts, std::int64_t rows, std::int64_t captured) {
    Region& input = model_->input();
    std::vector<hami_cuda_copy> copies;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < parts.size();) {
      std::int64_t joined = parts[i].rows;
      std::size_t next = i + 1;
      for (; next < parts.size() && follows(parts[next - 1], parts[next]); ++next) joined += parts[next].rows;
      copies.push_back(copy_rows(parts[i], joined, input.start + static_cast<CUdeviceptr>(first) * input.row_bytes()));
      first += joined;
      i = next;
    }
    device().kernels().copy(*stream(), copies);
    if (captured == rows) return;
    const CUdeviceptr end = input.start + static_cast<CUdeviceptr>(rows) * input.row_bytes();
    stream()->driver().check(
        stream()->api().clear(end, 0, static_cast<std::size_t>(captured - rows) * input.row_bytes(), stream()->raw()),
        "cannot clear memory of the device");
  }

  // Whether two parts are rows of one tensor in their order, as the results of a batch of images are.
  bool follows(const Part& one, const Part& other) const {
    if (!one.data.is_contiguous() || !other.data.is_contiguous()) return false;
    return static_cast<const char*>(one.data.view().data) + one.data.nbytes() == other.data.view().data;
  }

  hami_cuda_copy copy_rows(const Part& part, std::int64_t rows, CUdeviceptr to) const {
    const DLTensor& view = part.data.view();
    Shape shape{rows};
    Shape strides{part.is_row || view.shape[0] == 1
                      ? static_cast<std::int64_t>(model_->input().row_bytes() / item_size(view.dtype))
                      : view.strides[0]};
    for (const int axis : model_->axes()) {
      shape.push_back(view.shape[axis - (part.is_row ? 1 : 0)]);
      strides.push_back(view.strides[axis - (part.is_row ? 1 : 0)]);
    }
    DLTensor ordered = view;
    ordered.ndim = static_cast<std::int32_t>(shape.size());
    ordered.shape = shape.data();
    ordered.strides = strides.data();
    return copy_of(ordered, to, name());
  }

  // Gives each request a copy of its rows: a caller that keeps a result does not keep the batch. Small results share a block of
  // memory, so that the driver allocates and frees one for many.
  void split(const std::vector<Part>& parts, Region& output) {
    std::vector<hami_cuda_copy> copies;
    std::vector<std::shared_ptr<Memory>> blocks;
    std::int64_t row = 0;
    for (std::size_t first = 0, next = 0; first < parts.size(); first = next) {
      Layout layout;
      std::vector<std::size_t> offsets;
      do {
        offsets.push_back(layout.add(static_cast<std::size_t>(parts[next++].rows) * output.row_bytes()));
      } while (next < parts.size() && layout.size() < kSharedBlock);
      const std::shared_ptr<Memory>& memory = blocks.emplace_back(allocate(layout.size()));
      for (std::size_t i = first; i < next; ++i) {
        const Part& part = parts[i];
        const std::size_t offset = offsets[i - first];
        copies.push_back(copy_of(output.rows(row, part.rows), memory->start() + offset, name()));
        row += part.rows;
        Shape shape = output.row_shape();
        if (!part.is_row) shape.insert(shape.begin(), part.rows);
        part.item["result"] = device_tensor(memory, offset, output.type, std::move(shape));
      }
    }
    device().kernels().copy(*stream(), copies);
    for (const std::shared_ptr<Memory>& memory : blocks) memory->set_written();
  }

  std::shared_ptr<CapturedModel> model_;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(hami_cuda::CapturedModelBackend, "CapturedModel",
              "model: int 'number of a model that a backend has captured'"
              "; device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
              "Run requests with CUDA graphs that another backend has captured, which uses it by itself.");
