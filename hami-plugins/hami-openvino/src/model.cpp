// Reads and compiles models, and finds out whether their axis 0 is a batch.
#include "model.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>

namespace hami_openvino {
namespace {

constexpr std::size_t kMostProperties = 16;

// What is tried to find out what axes mean: sizes that no model has for other reasons, and a length that can be halved.
constexpr std::int64_t kSomeRows = 7;
constexpr std::int64_t kOtherRows = 11;
constexpr std::int64_t kLength = 64;

[[noreturn]] void refuse(const std::string& text) {
  throw hami::Error(HAMI_FAILED_PRECONDITION, "OpenvinoTensor: " + text);
}

// What a variable of the model holds would go from one caller's request to the next one's.
void refuse_state(const std::string& path) {
  if (std::filesystem::path(path).extension() != ".xml") return;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.find("type=\"ReadValue\"") == std::string::npos) return;
  refuse("\"" + path + "\" keeps values from one run to the next (ReadValue), and OpenVINO's C library cannot reset them "
         "between callers; export the model without state");
}

// What tells one opened model from another; one of which a file was replaced is opened anew.
std::string key_of(const Settings& settings, const Files& files) {
  std::string key = settings.library + '\n' + settings.device + '\n';
  key += settings.batched ? (*settings.batched ? "batched" : "not batched") : "";
  for (const auto& [name, value] : settings.properties) key += '\n' + name + '=' + value;
  return key + files.stamp();
}

// In a fork none of OpenVINO's threads are left, and even a model that is opened there waits for them for ever.
void refuse_fork() {
  static const pid_t user = getpid();
  if (getpid() == user) return;
  refuse("OpenVINO was in use when this process was forked, and cannot be used in the child; build pipes after forks "
         "only, or start processes with \"spawn\"");
}

}  // namespace

std::string show_shape(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape)
    text += (text.empty() ? "" : ", ") + (size == kFree ? "?" : std::to_string(size));
  return "[" + text + "]";
}

std::string show_names(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "\"" : ", \"") + port.name + "\"";
  return "[" + text + "]";
}

std::string Port::show() const { return std::string(element->name) + " " + (ranked ? show_shape(shape) : "[...]"); }

std::shared_ptr<const Model> Model::open(const Settings& settings) {
  static std::mutex mutex;  // guards `open`; held while one is opened, so that many instances open it once
  static auto& opened = *new std::map<std::string, std::weak_ptr<const Model>>;
  const Files files = files_of(settings.model);
  const std::string key = key_of(settings, files);
  refuse_fork();  // before the mutex, which a thread of the parent may have
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Model>& known = opened[key];
  if (std::shared_ptr<const Model> model = known.lock()) return model;
  std::shared_ptr<const Model> model(new Model(Library::of(settings.library), settings, files));
  known = model;
  return model;
}

Model::Model(Library& library, const Settings& settings, const Files& files)
    : library_(library), settings_(settings), path_(files.model.string()) {
  refuse_state(path_);
  read(files);
  inputs_ = ports(true);
  outputs_ = ports(false);
  rows_ = find_rows(settings.batched);
  compiled_ = compile();
}

// OpenVINO lists no names, but finds an input by any of them.
std::optional<std::size_t> Model::input_called(const std::string& name) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].name == name) return i;
  const Api& api = library_.api();
  Owned<ov_output_const_port_t> wanted(api.ov_output_const_port_free);
  if (api.ov_model_const_input_by_name(graph_.get(), name.c_str(), wanted.out()) != 0) return std::nullopt;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    Owned<ov_output_const_port_t> input(api.ov_output_const_port_free);
    if (api.ov_model_const_input_by_index(graph_.get(), i, input.out()) == 0 &&
        any_name(input.get()) == any_name(wanted.get()))
      return i;
  }
  return std::nullopt;
}

std::shared_ptr<Compiled> Model::compiled() const {
  const std::lock_guard lock(compiling_);
  if (compiled_->spoiled) compiled_ = compile();
  return compiled_;
}

Owned<ov_infer_request_t> Model::request(const Compiled& compiled) const {
  Owned<ov_infer_request_t> request(library_.api().ov_infer_request_free);
  library_.check(library_.api().ov_compiled_model_create_infer_request(compiled.handle.get(), request.out()),
                 "OpenvinoTensor: there is no further infer request to be had");
  return request;
}

void Model::read(const Files& files) {
  graph_ = Owned<ov_model_t>(library_.api().ov_model_free);
  const auto size = std::filesystem::file_size(path_);
  if (size == 0) refuse("\"" + path_ + "\" is empty, and is no model");
  if (library_.api().ov_core_read_model(library_.core(), path_.c_str(), nullptr, graph_.out()) != 0)
    refuse("OpenVINO " + library_.version() + " cannot read \"" + path_ + "\" (" + std::to_string(size) +
           " bytes): " + library_.reason() + files.show_missing());
}

std::shared_ptr<Compiled> Model::compile() const {
  if (settings_.properties.size() > kMostProperties)
    refuse("at most " + std::to_string(kMostProperties) + " properties are taken, got " +
           std::to_string(settings_.properties.size()));
  std::array<const char*, 2 * kMostProperties> texts{};
  std::size_t count = 0;
  for (const auto& [name, value] : settings_.properties) {
    texts[count++] = name.c_str();
    texts[count++] = value.c_str();
  }
  auto compiled = std::make_shared<Compiled>();
  compiled->handle = Owned<ov_compiled_model_t>(library_.api().ov_compiled_model_free);
  const ov_status_e status = std::apply(
      [&](auto... all) {  // it takes them one by one, and looks at the first `count`
        return library_.api().ov_core_compile_model(library_.core(), graph_.get(), settings_.device.c_str(), count,
                                                    compiled->handle.out(), all...);
      },
      texts);
  if (status == 0) return compiled;
  const std::string reason = library_.reason();
  std::string devices;
  for (const std::string& device : library_.devices()) devices += (devices.empty() ? "" : ", ") + device;
  refuse("OpenVINO " + library_.version() + " cannot compile \"" + path_ + "\" for device \"" + settings_.device +
         "\"; there are " + devices + " here, and AUTO and HETERO over them: " + reason);
}

std::vector<Port> Model::ports(bool of_inputs) const {
  const Api& api = library_.api();
  const char* what = of_inputs ? "input" : "output";
  const std::string failure = std::string("OpenvinoTensor: the model does not tell its ") + what + "s";
  std::size_t count = 0;
  library_.check((of_inputs ? api.ov_model_inputs_size : api.ov_model_outputs_size)(graph_.get(), &count), failure);
  std::vector<Port> found;
  for (std::size_t i = 0; i < count; ++i) {
    Owned<ov_output_const_port_t> port(api.ov_output_const_port_free);
    const auto at = of_inputs ? api.ov_model_const_input_by_index : api.ov_model_const_output_by_index;
    library_.check(at(graph_.get(), i, port.out()), failure);
    Port next = this->port(port.get(), what + std::to_string(i));
    const auto is_taken = [&](const Port& other) { return other.name == next.name; };
    while (std::any_of(found.begin(), found.end(), is_taken)) next.name += '_' + std::to_string(i);
    found.push_back(std::move(next));
  }
  return found;
}

// Always the same one; "": it has none.
std::string Model::any_name(const ov_output_const_port_t* port) const {
  char* name = nullptr;
  if (library_.api().ov_port_get_any_name(port, &name) != 0 || !name) return "";
  const std::string text = name;
  library_.api().ov_free(name);
  return text;
}

Port Model::port(const ov_output_const_port_t* port, const std::string& fallback_name) const {
  const Api& api = library_.api();
  Port read;
  read.name = any_name(port);
  if (read.name.empty()) read.name = fallback_name;
  const std::string failure = "OpenvinoTensor: the model does not tell the type of \"" + read.name + "\"";
  ov_element_type_e number = 0;
  library_.check(api.ov_port_get_element_type(port, &number), failure);
  read.element = library_.element(number);
  if (!read.element) refuse("\"" + read.name + "\" of the model has elements that are no numbers of whole bytes");
  ov_partial_shape_t shape{};
  library_.check(api.ov_port_get_partial_shape(port, &shape), failure);
  read.ranked = shape.rank.min == shape.rank.max;
  for (std::int64_t axis = 0; read.ranked && axis < shape.rank.max; ++axis)
    read.shape.push_back(shape.dims[axis].min == shape.dims[axis].max ? shape.dims[axis].max : kFree);
  api.ov_partial_shape_free(&shape);
  return read;
}

// All inputs and outputs must have it, with one size. A free axis 0 of an output may be anything, found boxes for
// example: it is a batch if, by the model's own rules of shapes, it has as many rows as the inputs have, these cannot
// differ in theirs, and no other axis depends on them: requests that run together would see each other.
std::int64_t Model::find_rows(std::optional<bool> batched) const {
  if (batched == false) return 0;
  std::vector<Port> all = inputs_;
  all.insert(all.end(), outputs_.begin(), outputs_.end());
  const bool alike = !inputs_.empty() && std::all_of(all.begin(), all.end(), [&](const Port& port) {
    return port.ranked && !port.shape.empty() && port.shape[0] == all[0].shape[0];
  });
  if (!alike || all[0].shape[0] == 0) {
    if (!batched) return 0;
    std::string shown;
    for (const Port& port : all) shown += (shown.empty() ? "" : ", ") + port.name + " " + port.show();
    refuse("batched = true, but not all have the same axis 0: " + shown);
  }
  if (all[0].shape[0] != kFree || batched) return all[0].shape[0];
  const bool follows = outputs_follow() && inputs_are_tied() && other_axes_are_free();
  if (!reshape(with_rows(kFree))) refuse("the shapes of the model cannot be set: " + library_.reason());
  return follows ? kFree : 0;
}

// Whether the outputs have the rows of the inputs, and are as they are otherwise, whatever these rows are.
bool Model::outputs_follow() const {
  if (!reshape(with_rows(kSomeRows))) return false;
  const std::vector<Port> some = ports(false);
  if (!reshape(with_rows(kOtherRows))) return false;
  const std::vector<Port> other = ports(false);
  return std::equal(some.begin(), some.end(), other.begin(), [](const Port& a, const Port& b) {
    return a.ranked && b.ranked && !a.shape.empty() && a.shape.size() == b.shape.size() && a.shape[0] == kSomeRows &&
           b.shape[0] == kOtherRows && std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
  });
}

// Whether all must have the rows of the first. One is tied to it if it may not have others while the rest may have any,
// or so to one that is.
bool Model::inputs_are_tied() const {
  std::vector<Shape> shapes = with_rows(kFree);
  shapes[0][0] = kSomeRows;
  for (bool found = true; found;) {
    found = false;
    for (Shape& shape : shapes) {
      if (shape[0] != kFree) continue;
      shape[0] = kOtherRows;
      const bool tied = !reshape(shapes);
      shape[0] = tied ? kSomeRows : kFree;
      found = found || tied;
    }
  }
  return std::all_of(shapes.begin(), shapes.end(), [](const Shape& shape) { return shape[0] != kFree; });
}

// Whether no other axis of an input must be as long as there are rows.
bool Model::other_axes_are_free() const {
  for (std::size_t input = 0; input < inputs_.size(); ++input)
    for (std::size_t axis = 1; axis < inputs_[input].shape.size(); ++axis) {
      if (inputs_[input].shape[axis] != kFree) continue;
      const auto takes = [&](std::int64_t rows) {
        std::vector<Shape> shapes = with_rows(rows);
        shapes[input][axis] = kLength;
        return reshape(shapes);
      };
      if (!takes(kSomeRows) && takes(kLength)) return false;
    }
  return true;
}

std::vector<Shape> Model::with_rows(std::int64_t rows) const {
  std::vector<Shape> shapes;
  for (const Port& input : inputs_) {
    shapes.push_back(input.shape);
    shapes.back()[0] = rows;
  }
  return shapes;
}

bool Model::reshape(const std::vector<Shape>& shapes) const {
  std::vector<std::size_t> indexes;
  std::vector<std::vector<ov_dimension_t>> sizes;
  std::vector<ov_partial_shape_t> partial;
  for (const Shape& shape : shapes) {
    indexes.push_back(indexes.size());
    sizes.emplace_back();
    for (const std::int64_t size : shape)
      sizes.back().push_back(size == kFree ? ov_dimension_t{0, -1} : ov_dimension_t{size, size});
    const auto rank = static_cast<std::int64_t>(shape.size());
    partial.push_back({{rank, rank}, sizes.back().data()});
  }
  return library_.api().ov_model_reshape_by_port_indexes(graph_.get(), indexes.data(), partial.data(),
                                                         partial.size()) == 0;
}

}  // namespace hami_openvino
