// CapturedModel: the CUDA graphs that another library captured of a model, one for each of some numbers of rows.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device_tensor.hpp"

namespace hami_cuda {

// Memory of the other library, which keeps it as long as the model is open.
struct Region {
  CUdeviceptr start = 0;
  DLDataType type{};
  Shape shape;
  Shape strides;  // in elements

  explicit Region(const DLTensor& tensor);
  Shape row_shape() const { return {shape.begin() + 1, shape.end()}; }
  std::size_t row_bytes() const { return count_of(row_shape()) * item_size(type); }
  // The first rows.
  DLTensor rows(std::int64_t first, std::int64_t count);
};

// The graphs read the first rows of one input and write outputs of their own. One thread at a time uses them: between `enter` and
// `leave`, whose order on the device the model keeps.
class CapturedModel {
 public:
  struct Graph {
    CUgraphExec launch;
    Region output;
  };
  struct Rules {
    bool pads = false;             // a graph may run with fewer rows than it was captured for
    bool takes_rows = false;       // data without the batch axis is one row
    std::int64_t watch_every = 0;  // one of so many batches of several requests is left to the owner; 0: none
  };

  // Error(HAMI_DATA_TYPE) if rows of the input are not dense in memory.
  CapturedModel(const Device& device, const DLTensor& input, Rules rules);

  const Rules& rules() const noexcept { return rules_; }
  Region& input() noexcept { return input_; }
  // The axes of a row, from 1 on, in the order of memory.
  const std::vector<int>& axes() const noexcept { return axes_; }

  // Between `enter` and `leave`.
  void add(std::int64_t rows, Graph graph) { graphs_.insert_or_assign(rows, std::move(graph)); }
  void drop_graphs() { graphs_.clear(); }
  // The smallest graph that runs so many rows; null: there is none.
  std::pair<const std::int64_t, Graph>* graph_for(std::int64_t rows);
  // Counts a batch of several requests. False: it is one that the owner runs, and was not counted.
  bool count_joined();
  // The number of batches that were counted since the last call.
  std::int64_t take_joined();

  // Waits for the other user. Work on `stream`, whose device is the current one, then follows that of the other.
  void enter(CUstream stream);
  void leave(CUstream stream) noexcept;

 private:
  const Device& device_;
  Region input_;
  const Rules rules_;
  std::vector<int> axes_;
  std::mutex mutex_;  // held from `enter` to `leave`; guards what follows
  std::map<std::int64_t, Graph> graphs_;
  std::optional<CUstream> last_;
  std::int64_t joined_ = 0;   // since the owner last ran one
  std::int64_t untaken_ = 0;  // since take_joined
};

// The models that are open in this process, by number.
class CapturedModels {
 public:
  static CapturedModels& get();
  std::int64_t add(std::shared_ptr<CapturedModel> model);
  // Error(HAMI_NOT_FOUND) for a number without a model.
  std::shared_ptr<CapturedModel> find(std::int64_t number);
  void remove(std::int64_t number);

 private:
  std::mutex mutex_;  // guards what follows
  std::int64_t last_ = 0;
  std::map<std::int64_t, std::shared_ptr<CapturedModel>> models_;
};

}  // namespace hami_cuda
