// A model as OpenVINO reads it, before compilation: its inputs, its outputs and their shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "library.hpp"
#include "model_files.hpp"

namespace hami_openvino {

using Shape = std::vector<std::int64_t>;
constexpr std::int64_t kDynamic = -1;  // size of an axis that may have any size

// An input or output of a model.
struct Port {
  std::string name;
  const ElementType* type = nullptr;
  bool has_rank = true;  // false: the number of axes is dynamic too
  Shape shape;

  std::string show() const;  // for example: float32 [?, 3]
};

std::string show_shape(const Shape& shape);
std::string show_names(const std::vector<Port>& ports);

class Graph {
 public:
  // hami::Error(HAMI_FAILED_PRECONDITION) if OpenVINO cannot read the model, or if the model keeps state.
  Graph(const Library& library, const ModelFiles& files);

  const Library& library() const noexcept { return library_; }
  const ov_model_t* handle() const noexcept { return handle_.get(); }
  std::vector<Port> inputs() const { return ports(true); }
  std::vector<Port> outputs() const { return ports(false); }

  // Index of the input that has this name among its names; nullopt if there is none.
  std::optional<std::size_t> find_input(const std::string& name) const;

  // Gives the ports the names that the model file has for them. OpenVINO merges an output that is an input, or the same
  // tensor as another output, with that port, and then reports any of the names. Returns where each of `input_names` is
  // among the inputs; nullopt: OpenVINO has removed this input, because no output depends on it.
  std::vector<std::optional<std::size_t>> rename(const std::vector<std::string>& input_names,
                                                 const std::vector<std::string>& output_names,
                                                 std::vector<Port>& inputs, std::vector<Port>& outputs) const;

  // Sets the shapes of all inputs; OpenVINO derives those of the outputs. False: OpenVINO rejects the shapes.
  bool reshape(const std::vector<Shape>& input_shapes);

 private:
  std::vector<Port> ports(bool of_inputs) const;
  std::size_t count(bool of_inputs) const;
  Port read_port(const ov_output_const_port_t* port, const std::string& fallback_name) const;
  std::string any_name(const ov_output_const_port_t* port) const;

  const Library& library_;
  Owned<ov_model_t> handle_;
};

}  // namespace hami_openvino
