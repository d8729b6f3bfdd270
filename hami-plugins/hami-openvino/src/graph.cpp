// Reads a model file, lists inputs and outputs, and changes shapes.
#include "graph.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "error.hpp"

namespace hami_openvino {
namespace {

// State would leak from the request of one caller into the request of another.
void check_is_stateless(const std::filesystem::path& path) {
  if (path.extension() != ".xml") return;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.find("type=\"ReadValue\"") == std::string::npos) return;
  fail_setup("\"" + path.string() +
             "\" keeps state between runs (ReadValue), which OpenVINO's C library cannot reset between callers; export "
             "the model without state");
}

std::string supported_types() {
  std::string text;
  for (const ElementType& type : element_types()) text += (text.empty() ? "" : ", ") + std::string(type.name);
  return text;
}

}  // namespace

std::string show_shape(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape)
    text += (text.empty() ? "" : ", ") + (size == kDynamic ? "?" : std::to_string(size));
  return "[" + text + "]";
}

std::string show_names(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "\"" : ", \"") + port.name + "\"";
  return "[" + text + "]";
}

std::string Port::show() const { return std::string(type->name) + " " + (has_rank ? show_shape(shape) : "[...]"); }

Graph::Graph(const Library& library, const ModelFiles& files)
    : library_(library), handle_(library.api().ov_model_free) {
  check_is_stateless(files.model);
  const std::string path = files.model.string();
  const auto size = std::filesystem::file_size(files.model);
  if (size == 0) fail_setup("\"" + path + "\" is empty; expected an ONNX model or an OpenVINO IR");
  const std::optional<std::string> content = files.with_linked_weights();
  const Api& api = library_.api();
  const ov_status_e status = content ? api.ov_core_read_model_from_memory_buffer(
                                           library_.core(), content->data(), content->size(), nullptr, handle_.out())
                                     : api.ov_core_read_model(library_.core(), path.c_str(), nullptr, handle_.out());
  if (status != 0)
    fail_setup("OpenVINO " + library_.version() + " cannot read \"" + path + "\" (" + std::to_string(size) +
               " bytes): " + library_.last_error() + files.show_missing());
}

// OpenVINO does not list all names of an input, but finds an input by any of them.
std::optional<std::size_t> Graph::find_input(const std::string& name) const {
  const Api& api = library_.api();
  Owned<ov_output_const_port_t> wanted(api.ov_output_const_port_free);
  if (api.ov_model_const_input_by_name(handle_.get(), name.c_str(), wanted.out()) != 0) return std::nullopt;
  const std::size_t inputs = count(true);
  for (std::size_t i = 0; i < inputs; ++i) {
    Owned<ov_output_const_port_t> input(api.ov_output_const_port_free);
    if (api.ov_model_const_input_by_index(handle_.get(), i, input.out()) == 0 &&
        any_name(input.get()) == any_name(wanted.get()))
      return i;
  }
  return std::nullopt;
}

std::vector<std::optional<std::size_t>> Graph::rename(const std::vector<std::string>& input_names,
                                                      const std::vector<std::string>& output_names,
                                                      std::vector<Port>& inputs, std::vector<Port>& outputs) const {
  std::vector<std::optional<std::size_t>> places;
  std::vector<bool> renamed(inputs.size());
  for (const std::string& name : input_names) {
    const std::optional<std::size_t> place = find_input(name);
    if (place && !renamed[*place]) {
      inputs[*place].name = name;
      renamed[*place] = true;
    }
    places.push_back(place);
  }
  // Where the model returns an input, OpenVINO may know it only by the name of the output.
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!renamed[i]) left.push_back(i);
  if (left.size() == static_cast<std::size_t>(std::count(places.begin(), places.end(), std::nullopt)))
    for (std::size_t i = 0, next = 0; i < places.size(); ++i)
      if (!places[i]) {
        places[i] = left[next++];
        inputs[*places[i]].name = input_names[i];
      }
  if (output_names.size() == outputs.size())
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].name = output_names[i];
  return places;
}

bool Graph::reshape(const std::vector<Shape>& input_shapes) {
  std::vector<std::size_t> indexes;
  std::vector<std::vector<ov_dimension_t>> dimensions;
  std::vector<ov_partial_shape_t> shapes;
  for (const Shape& shape : input_shapes) {
    indexes.push_back(indexes.size());
    dimensions.emplace_back();
    for (const std::int64_t size : shape)
      dimensions.back().push_back(size == kDynamic ? ov_dimension_t{0, -1} : ov_dimension_t{size, size});
    const auto rank = static_cast<std::int64_t>(shape.size());
    shapes.push_back({{rank, rank}, dimensions.back().data()});
  }
  return library_.api().ov_model_reshape_by_port_indexes(handle_.get(), indexes.data(), shapes.data(), shapes.size()) ==
         0;
}

std::size_t Graph::count(bool of_inputs) const {
  const Api& api = library_.api();
  std::size_t count = 0;
  library_.check(
      (of_inputs ? api.ov_model_inputs_size : api.ov_model_outputs_size)(handle_.get(), &count),
      std::string("OpenvinoTensor: cannot count the ") + (of_inputs ? "inputs" : "outputs") + " of the model");
  return count;
}

// Ports without a name, and ports that share a name with an earlier one, get a name with their index.
std::vector<Port> Graph::ports(bool of_inputs) const {
  const Api& api = library_.api();
  const std::string kind = of_inputs ? "input" : "output";
  const auto port_at = of_inputs ? api.ov_model_const_input_by_index : api.ov_model_const_output_by_index;
  const std::size_t total = count(of_inputs);
  std::vector<Port> found;
  for (std::size_t i = 0; i < total; ++i) {
    Owned<ov_output_const_port_t> handle(api.ov_output_const_port_free);
    library_.check(port_at(handle_.get(), i, handle.out()),
                   "OpenvinoTensor: cannot read " + kind + " " + std::to_string(i) + " of the model");
    Port port = read_port(handle.get(), kind + std::to_string(i));
    const auto has_same_name = [&](const Port& other) { return other.name == port.name; };
    while (std::any_of(found.begin(), found.end(), has_same_name)) port.name += '_' + std::to_string(i);
    found.push_back(std::move(port));
  }
  return found;
}

Port Graph::read_port(const ov_output_const_port_t* port, const std::string& fallback_name) const {
  const Api& api = library_.api();
  Port read;
  read.name = any_name(port);
  if (read.name.empty()) read.name = fallback_name;
  const std::string failure = "OpenvinoTensor: cannot read the type and shape of \"" + read.name + "\"";
  ov_element_type_e code = 0;
  library_.check(api.ov_port_get_element_type(port, &code), failure);
  read.type = library_.find_type(code);
  if (!read.type)
    fail_setup("\"" + read.name + "\" of the model has an unsupported element type; supported are " +
               supported_types());
  ov_partial_shape_t shape{};
  library_.check(api.ov_port_get_partial_shape(port, &shape), failure);
  read.has_rank = shape.rank.min == shape.rank.max;
  for (std::int64_t axis = 0; read.has_rank && axis < shape.rank.max; ++axis)
    read.shape.push_back(shape.dims[axis].min == shape.dims[axis].max ? shape.dims[axis].max : kDynamic);
  api.ov_partial_shape_free(&shape);
  return read;
}

// One of the names of a port, the same in every call; empty if it has none.
std::string Graph::any_name(const ov_output_const_port_t* port) const {
  char* name = nullptr;
  if (library_.api().ov_port_get_any_name(port, &name) != 0 || !name) return "";
  const std::string text = name;
  library_.api().ov_free(name);
  return text;
}

}  // namespace hami_openvino
