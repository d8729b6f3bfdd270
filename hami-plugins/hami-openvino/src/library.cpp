// dlopen and dlsym of OpenVINO's C library, and the questions that it is asked once.
#include "library.hpp"

#include <dlfcn.h>

#include <mutex>
#include <sstream>

namespace hami_openvino {
namespace {

constexpr int kOldestMajor = 2024;

[[noreturn]] void unavailable(const std::string& text) { throw hami::Error(HAMI_UNAVAILABLE, text); }

template <class Function>
void find(void* library, const char* name, const std::string& path, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (!function) unavailable("\"" + path + "\" has no function " + name + "; OpenVINO from 2024.0 on has it");
}

// A model with one input of each element type.
std::string model_of_all_elements() {
  std::string layers;
  std::string edges;
  int id = 0;
  for (const Element& element : elements()) {
    const std::string port =
        std::string("port id=\"0\" precision=\"") + element.ir_precision + "\"><dim>1</dim></port>";
    const auto layer = [&](const char* kind, const char* type) {
      return "<layer id=\"" + std::to_string(id++) + "\" name=\"" + kind + element.name + "\" type=\"" + type +
             "\" version=\"opset1\">";
    };
    edges += "<edge from-layer=\"" + std::to_string(id) + "\" from-port=\"0\" to-layer=\"" + std::to_string(id + 1) +
             "\" to-port=\"0\"/>";
    layers += layer("in_", "Parameter") + "<data shape=\"1\" element_type=\"" + element.ir_type + "\"/><output><" +
              port + "</output></layer>";
    layers += layer("out_", "Result") + "<input><" + port + "</input></layer>";
  }
  return "<?xml version=\"1.0\"?><net name=\"elements\" version=\"11\"><layers>" + layers + "</layers><edges>" + edges +
         "</edges></net>";
}

}  // namespace

Library& Library::of(const std::string& path) {
  static std::mutex mutex;                                                     // guards `loaded`
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Library>>;  // threads of OpenVINO outlive main
  const std::lock_guard lock(mutex);
  std::unique_ptr<Library>& library = loaded[path];
  if (!library) library.reset(new Library(path));
  return *library;
}

Library::Library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    unavailable("OpenVINO's C library cannot be loaded: " + std::string(reason ? reason : path));
  }
#define HAMI_OPENVINO_FIND(result, name, arguments) find(library, #name, path, api_.name);
  HAMI_OPENVINO_FUNCTIONS(HAMI_OPENVINO_FIND)
#undef HAMI_OPENVINO_FIND
  read_version(path);
  check(api_.ov_core_create(&core_), "OpenVINO " + version_ + " (\"" + path + "\") cannot be started");
  read_numbers();
}

void Library::read_version(const std::string& path) {
  ov_version_t version{};
  check(api_.ov_get_openvino_version(&version), "\"" + path + "\" does not tell its version");
  const std::string text = version.buildNumber ? version.buildNumber : "";
  api_.ov_version_free(&version);
  version_ = text.substr(0, text.find('-'));
  int major = 0;
  if (std::istringstream(version_) >> major && major < kOldestMajor)
    unavailable("\"" + path + "\" is OpenVINO " + version_ +
                "; 2024.0 is the oldest that is taken: pip install -U openvino");
}

// The numbers moved when types were added and taken away, so the library is asked, whatever its version.
void Library::read_numbers() {
  const std::string text = model_of_all_elements();
  const std::string what = "OpenVINO " + version_ + " does not tell its element types";
  Owned<ov_model_t> model(api_.ov_model_free);
  check(api_.ov_core_read_model_from_memory_buffer(core_, text.data(), text.size(), nullptr, model.out()), what);
  std::size_t index = 0;
  for (const Element& element : elements()) {
    Owned<ov_output_const_port_t> port(api_.ov_output_const_port_free);
    check(api_.ov_model_const_input_by_index(model.get(), index++, port.out()), what);
    check(api_.ov_port_get_element_type(port.get(), &numbers_[&element]), what);
  }
}

const Element* Library::element(ov_element_type_e number) const noexcept {
  for (const auto& [element, known] : numbers_)
    if (known == number) return element;
  return nullptr;
}

std::vector<std::string> Library::devices() const {
  ov_available_devices_t found{};
  if (api_.ov_core_get_available_devices(core_, &found) != 0) return {};
  std::vector<std::string> names(found.devices, found.devices + found.size);
  api_.ov_available_devices_free(&found);
  return names;
}

// Its texts begin with where in its sources they were made, and have several lines.
std::string Library::reason() const {
  const char* given = api_.ov_get_last_err_msg();
  if (!given) return "OpenVINO gives no reason";
  std::istringstream lines(given);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find_first_not_of(" \t");
    const std::size_t end = line.find_last_not_of(" \t\r");
    if (start == std::string::npos || line.rfind("Exception from src/", 0) == 0 ||
        line.find("' failed at src/") != std::string::npos)
      continue;
    text += (text.empty() ? "" : " ") + line.substr(start, end + 1 - start);
  }
  api_.ov_free(given);
  return text.empty() ? "OpenVINO gives no reason" : text;
}

void Library::check(ov_status_e status, const std::string& what, std::int32_t code) const {
  if (status != 0) throw hami::Error(code, what + ": " + reason());
}

}  // namespace hami_openvino
