// Loads OpenVINO's C library with dlopen, and reads its version and its codes of element types.
#include "library.hpp"

#include <dlfcn.h>

#include <sstream>

namespace hami_openvino {
namespace {

constexpr int kMinMajor = 2024;

[[noreturn]] void unavailable(const std::string& text) { throw hami::Error(HAMI_UNAVAILABLE, text); }

template <class Function>
void resolve(void* library, const char* name, const std::string& path, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (!function) unavailable("\"" + path + "\" has no function " + name + "; OpenVINO 2024.0 or newer is required");
}

// An IR with one input of each element type, in the order of element_types().
std::string model_with_all_types() {
  std::string layers;
  std::string edges;
  int id = 0;
  for (const ElementType& type : element_types()) {
    const std::string port = std::string("port id=\"0\" precision=\"") + type.ir_precision + "\"><dim>1</dim></port>";
    const auto layer = [&](const char* prefix, const char* operation) {
      return "<layer id=\"" + std::to_string(id++) + "\" name=\"" + prefix + type.name + "\" type=\"" + operation +
             "\" version=\"opset1\">";
    };
    edges += "<edge from-layer=\"" + std::to_string(id) + "\" from-port=\"0\" to-layer=\"" + std::to_string(id + 1) +
             "\" to-port=\"0\"/>";
    layers += layer("in_", "Parameter") + "<data shape=\"1\" element_type=\"" + type.ir_type + "\"/><output><" + port +
              "</output></layer>";
    layers += layer("out_", "Result") + "<input><" + port + "</input></layer>";
  }
  return "<?xml version=\"1.0\"?><net name=\"element_types\" version=\"11\"><layers>" + layers + "</layers><edges>" +
         edges + "</edges></net>";
}

}  // namespace

Library::Library(const std::string& path) {
  void* const library = hami::load_c_library(path, "OpenVINO's C library");
#define HAMI_OPENVINO_RESOLVE(result, name, arguments) resolve(library, #name, path, api_.name);
  HAMI_OPENVINO_FUNCTIONS(HAMI_OPENVINO_RESOLVE)
#undef HAMI_OPENVINO_RESOLVE
  read_version(path);
  check(api_.ov_core_create(&core_), "OpenVINO " + version_ + " (\"" + path + "\") failed to start");
  read_type_codes();
}

void Library::read_version(const std::string& path) {
  ov_version_t version{};
  check(api_.ov_get_openvino_version(&version), "\"" + path + "\" does not report its version");
  const std::string text = version.buildNumber ? version.buildNumber : "";
  api_.ov_version_free(&version);
  version_ = text.substr(0, text.find('-'));
  int major = 0;
  if (std::istringstream(version_) >> major && major < kMinMajor)
    unavailable("\"" + path + "\" is OpenVINO " + version_ + "; 2024.0 or newer is required: pip install -U openvino");
}

// The codes differ between versions of OpenVINO, so the library is asked: it reads a model with all types.
void Library::read_type_codes() {
  const std::string text = model_with_all_types();
  const std::string what = "OpenVINO " + version_ + " does not report its element types";
  Owned<ov_model_t> model(api_.ov_model_free);
  check(api_.ov_core_read_model_from_memory_buffer(core_, text.data(), text.size(), nullptr, model.out()), what);
  std::size_t index = 0;
  for (const ElementType& type : element_types()) {
    Owned<ov_output_const_port_t> port(api_.ov_output_const_port_free);
    check(api_.ov_model_const_input_by_index(model.get(), index++, port.out()), what);
    check(api_.ov_port_get_element_type(port.get(), &codes_[&type]), what);
  }
}

const ElementType* Library::find_type(ov_element_type_e code) const noexcept {
  for (const auto& [type, known] : codes_)
    if (known == code) return type;
  return nullptr;
}

std::vector<std::string> Library::devices() const {
  ov_available_devices_t found{};
  if (api_.ov_core_get_available_devices(core_, &found) != 0) return {};
  std::vector<std::string> names(found.devices, found.devices + found.size);
  api_.ov_available_devices_free(&found);
  return names;
}

// OpenVINO's messages have several lines. Lines that name a place in OpenVINO's sources are left out.
std::string Library::last_error() const {
  constexpr const char* kNoReason = "OpenVINO reports no reason";
  const char* message = api_.ov_get_last_err_msg();
  if (!message) return kNoReason;
  std::istringstream lines(message);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find_first_not_of(" \t");
    const std::size_t end = line.find_last_not_of(" \t\r");
    if (start == std::string::npos || line.rfind("Exception from src/", 0) == 0 ||
        line.find("' failed at src/") != std::string::npos)
      continue;
    text += (text.empty() ? "" : " ") + line.substr(start, end + 1 - start);
  }
  api_.ov_free(message);
  return text.empty() ? kNoReason : text;
}

void Library::check(ov_status_e status, const std::string& what, std::int32_t code) const {
  if (status != 0) throw hami::Error(code, what + ": " + last_error());
}

}  // namespace hami_openvino
