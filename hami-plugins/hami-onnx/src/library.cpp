// Loads ONNX Runtime's library with dlopen, and reads its table of functions.
#include "library.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace hami_onnx {
namespace {

[[noreturn]] void unavailable(const std::string& text) { throw hami::Error(HAMI_UNAVAILABLE, text); }

// What the only symbol of the library returns.
struct ApiBase {
  const void* (*get_api)(std::uint32_t version);
  const char* (*version)();
};

// 32 of "1.32.0"; version n of the interface comes with ONNX Runtime 1.n.
int minor_of(const std::string& version) {
  const std::size_t dot = version.find('.');
  return dot == std::string::npos ? 0 : std::atoi(version.c_str() + dot + 1);
}

}  // namespace

Library::Library(const std::string& path) {
  void* const library = hami::load_c_library(path, "ONNX Runtime's library");
  const auto get_base = reinterpret_cast<const ApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  if (!get_base)
    unavailable("\"" + path +
                "\" has no function OrtGetApiBase, so it is not ONNX Runtime's library; run: "
                "pip install --force-reinstall onnxruntime");
  const ApiBase* const base = get_base();
  version_ = base->version();
  const auto* functions = static_cast<void* const*>(base->get_api(kApiVersion));
  if (!functions)
    unavailable("\"" + path + "\" is ONNX Runtime " + version_ +
                "; 1.20 or newer is required: pip install -U onnxruntime");
// The order and the types of this table never change.
#define HAMI_ONNX_READ(index, result, name, arguments) \
  api_.name = reinterpret_cast<result(*) arguments>(functions[index]);
  HAMI_ONNX_FUNCTIONS(HAMI_ONNX_READ)
  if (minor_of(version_) >= static_cast<int>(kProviderApiVersion)) {
    functions = static_cast<void* const*>(base->get_api(kProviderApiVersion));
    HAMI_ONNX_PROVIDER_FUNCTIONS(HAMI_ONNX_READ)
  }
  if (minor_of(version_) >= static_cast<int>(kAssignmentApiVersion)) {
    functions = static_cast<void* const*>(base->get_api(kAssignmentApiVersion));
    HAMI_ONNX_ASSIGNMENT_FUNCTIONS(HAMI_ONNX_READ)
  }
#undef HAMI_ONNX_READ
  check(api_.CreateEnv(kErrors, "hami", &env_));
  check(api_.DisableTelemetryEvents(env_));
  check(api_.GetAllocatorWithDefaultOptions(&allocator_));
  check(api_.CreateCpuMemoryInfo(kDeviceAllocator, kDefaultMemory, &cpu_));
}

std::string Library::take_message(OrtStatus* status) const {
  if (!status) return "";
  const std::string text = api_.GetErrorMessage(status);
  api_.ReleaseStatus(status);
  return text.empty() ? "ONNX Runtime reports no reason" : text;
}

void Library::check(OrtStatus* status, std::int32_t code) const {
  if (status) throw hami::Error(code, take_message(status));
}

}  // namespace hami_onnx
