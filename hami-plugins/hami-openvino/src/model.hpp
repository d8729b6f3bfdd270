// A compiled model. Instances and pipes with equal settings share it; it is freed with the last of them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "batch_axis.hpp"

namespace hami_openvino {

struct RowTest {
  bool independent = false;
  bool ran = false;
  std::string why;  // not independent: what differs, or why the test did not run
};

struct Settings {
  std::string library;
  std::string model;
  std::string device;
  std::vector<std::pair<std::string, std::string>> properties;  // OpenVINO property and value
  std::optional<bool> batched;
  Plan plan;
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
  const BatchAxes& axes() const noexcept { return axes_; }
  std::string show_row_axes() const;  // "axis 0", or "axis 0 or 1", of the inputs
  std::int64_t batch_rows() const noexcept { return axes_.rows; }
  bool is_batched() const noexcept { return axes_.rows != kNoBatchAxis; }

  // Whether requests may run as one batch.
  bool joins() const noexcept { return joins_.load(std::memory_order_relaxed); }
  // Why requests are not joined; empty if they are, or if the model has no batch axis at all.
  const std::string& why_not_joined() const noexcept { return why_not_joined_; }
  // What a test of the rows found when the model was opened; nullopt: there was none, or it could not run.
  const std::optional<RowTest>& tested() const noexcept { return tested_; }
  // Counts a batch of joined requests. True: one of its requests should run again alone, to watch whether its result
  // depends on the others. Never true if the user has declared that rows are independent.
  bool is_watch_due() const noexcept;
  // Stops joining requests, in all pipes that use this model. True for the first caller.
  bool stop_joining() const noexcept { return joins_.exchange(false); }

  // INFERENCE_PRECISION_HINT of the compiled model, such as "f32"; empty if the device does not report it.
  std::string precision() const;
  bool computes_in_16_bits() const noexcept { return computes_in_16_bits_; }

  // Index of the input that has this name among its names; nullopt if there is none.
  std::optional<std::size_t> find_input(const std::string& name) const;
  // Where the inputs of the ONNX file are among inputs(), in the order of the file; nullopt: OpenVINO has removed this
  // input, because no output depends on it. Empty if only OpenVINO knows the names.
  const std::vector<std::optional<std::size_t>>& places() const noexcept { return places_; }
  // Whether the ONNX file has an input of this name that OpenVINO has removed.
  bool is_unused_input(const std::string& name) const;

  // The shared compiled model; compiles again if a run failed on it.
  std::shared_ptr<CompiledModel> compiled() const;
  // A new compiled model that is not shared.
  std::shared_ptr<CompiledModel> compile() const;
  // An infer request runs once at a time.
  Owned<ov_infer_request_t> create_infer_request(const CompiledModel& compiled) const;

 private:
  Model(const Library& library, const Settings& settings, const ModelFiles& files);
  // Tests whether rows influence each other, if that is not known yet.
  static void decide_joining(const std::shared_ptr<Model>& model);

  Settings settings_;
  std::string path_;
  Graph graph_;
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  std::vector<std::optional<std::size_t>> places_;
  BatchAxes axes_;
  bool computes_in_16_bits_ = false;
  std::string why_not_joined_;
  std::optional<RowTest> tested_;
  mutable std::atomic<bool> joins_{false};
  mutable std::atomic<unsigned> joined_batches_{0};
  mutable std::mutex compiling_;  // guards compiled_
  mutable std::shared_ptr<CompiledModel> compiled_;
};

}  // namespace hami_openvino
