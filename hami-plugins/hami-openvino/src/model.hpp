// A compiled model. Instances and pipes with equal settings share it; it is freed with the last of them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "batch_axis.hpp"

namespace hami_openvino {

struct Settings {
  std::string library;
  std::string model;
  std::string device;
  std::vector<std::pair<std::string, std::string>> properties;  // OpenVINO property and value
  std::optional<bool> batched;
};

// The result of one compilation, with the state that sessions share on it (session.hpp).
struct CompiledModel {
  Owned<ov_compiled_model_t> handle;
  std::atomic<bool> poisoned{false};  // a run failed on it
  std::atomic<unsigned> started_runs{0};
  std::atomic<unsigned> active_runs{0};
};

class Model {
 public:
  // Returns the open model with these settings, or opens it.
  // hami::Error(HAMI_FAILED_PRECONDITION) says what is wrong with the file or the settings.
  static std::shared_ptr<const Model> open(const Settings& settings);

  const Library& library() const noexcept { return graph_.library(); }
  const std::vector<Port>& inputs() const noexcept { return inputs_; }
  const std::vector<Port>& outputs() const noexcept { return outputs_; }
  std::int64_t batch_rows() const noexcept { return batch_rows_; }  // as find_batch_rows returns it
  bool is_batched() const noexcept { return batch_rows_ != kNoBatchAxis; }

  // Index of the input that has this name among its names; nullopt if there is none.
  std::optional<std::size_t> find_input(const std::string& name) const;

  // The shared compiled model; compiles again if a run failed on it.
  std::shared_ptr<CompiledModel> compiled() const;
  // A new compiled model that is not shared.
  std::shared_ptr<CompiledModel> compile() const;
  // An infer request runs once at a time.
  Owned<ov_infer_request_t> create_infer_request(const CompiledModel& compiled) const;

 private:
  Model(const Library& library, const Settings& settings, const ModelFiles& files);

  Settings settings_;
  std::string path_;
  Graph graph_;
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  std::int64_t batch_rows_ = kNoBatchAxis;
  mutable std::mutex compiling_;  // guards compiled_
  mutable std::shared_ptr<CompiledModel> compiled_;
};

}  // namespace hami_openvino
