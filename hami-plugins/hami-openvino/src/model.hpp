// A compiled model: opened once per process and settings, shared by all instances that use it, freed with the last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "files.hpp"
#include "library.hpp"

namespace hami_openvino {

using Shape = std::vector<std::int64_t>;
constexpr std::int64_t kFree = -1;  // an axis of any size

struct Settings {
  std::string library;
  std::string model;
  std::string device;
  std::vector<std::pair<std::string, std::string>> properties;  // as OpenVINO names them
  std::optional<bool> batched;
};

// An input or output.
struct Port {
  std::string name;
  const Element* element = nullptr;
  bool ranked = true;  // false: the model does not say how many axes it has
  Shape shape;

  std::string show() const;  // float32 [?, 3]
};

std::string show_shape(const Shape& shape);
std::string show_names(const std::vector<Port>& ports);

// What a model was compiled to, and what is going on there (session.hpp).
struct Compiled {
  Owned<ov_compiled_model_t> handle;
  std::atomic<bool> spoiled{false};  // a run failed
  std::atomic<unsigned> begun{0};
  std::atomic<unsigned> running{0};
};

class Model {
 public:
  // hami::Error(HAMI_FAILED_PRECONDITION) says what is wrong with the file or the settings.
  static std::shared_ptr<const Model> open(const Settings& settings);

  const Library& library() const noexcept { return library_; }
  const std::vector<Port>& inputs() const noexcept { return inputs_; }
  const std::vector<Port>& outputs() const noexcept { return outputs_; }
  // Axis 0: kFree if it is a batch of any size, N if one of N, 0 if it is no batch.
  std::int64_t rows() const noexcept { return rows_; }
  bool is_batched() const noexcept { return rows_ != 0; }

  // The index of the input that has this name, be it one of several; none if there is no such input.
  std::optional<std::size_t> input_called(const std::string& name) const;

  // As it is compiled now: anew if it is spoiled.
  std::shared_ptr<Compiled> compiled() const;
  std::shared_ptr<Compiled> compile() const;
  // A request of its own: one run at a time.
  Owned<ov_infer_request_t> request(const Compiled& compiled) const;

 private:
  Model(Library& library, const Settings& settings, const Files& files);
  void read(const Files& files);
  std::vector<Port> ports(bool of_inputs) const;
  std::string any_name(const ov_output_const_port_t* port) const;
  Port port(const ov_output_const_port_t* port, const std::string& fallback_name) const;
  std::int64_t find_rows(std::optional<bool> batched) const;
  bool outputs_follow() const;
  bool inputs_are_tied() const;
  bool other_axes_are_free() const;
  std::vector<Shape> with_rows(std::int64_t rows) const;
  bool reshape(const std::vector<Shape>& shapes) const;

  Library& library_;
  Settings settings_;
  std::string path_;
  Owned<ov_model_t> graph_;
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  std::int64_t rows_ = 0;
  mutable std::mutex compiling_;  // guards compiled_
  mutable std::shared_ptr<Compiled> compiled_;
};

}  // namespace hami_openvino
