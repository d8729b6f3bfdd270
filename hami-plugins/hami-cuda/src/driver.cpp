// Loads the CUDA driver with dlopen, checks its version, and opens devices.
#include "driver.hpp"

#include <dlfcn.h>
#include <hami/abi.h>

namespace hami_cuda {
namespace {

constexpr int kMinVersion = 11080;  // the version of NVRTC that compiled the kernels

[[noreturn]] void unavailable(const std::string& text) { throw CudaError(HAMI_UNAVAILABLE, text); }

// Errors after which the context is lost: illegal address, launch timeout, assertion, hardware fault, failed launch, …
bool is_sticky(CUresult result) { return result == 700 || result == 702 || (result >= 710 && result <= 721); }

std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

}  // namespace

Driver::Driver(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const text = dlerror();
    unavailable("the NVIDIA driver is not installed, or not visible in this container: " +
                std::string(text ? text : path) + "; install a driver for CUDA 11.8 or newer");
  }
  // An old driver lacks newer functions, so the version comes first.
  const auto version_of = reinterpret_cast<CUresult (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (!version_of || version_of(&version) != 0) unavailable("\"" + path + "\" is not a CUDA driver");
  if (version < kMinVersion)
    unavailable("the NVIDIA driver supports CUDA " + dotted(version) + " only; install a driver for CUDA " +
                dotted(kMinVersion) + " or newer");
  resolve(library, path);
  const CUresult result = api_.init(0);
  if (result == kNoDevice)
    unavailable("the NVIDIA driver finds no GPU; check that CUDA_VISIBLE_DEVICES does not hide it");
  if (result != 0) unavailable("the NVIDIA driver does not start: " + reason(result));
}

void Driver::resolve(void* library, const std::string& path) {
#define HAMI_CUDA_RESOLVE(result, symbol, name, parameters)                   \
  api_.name = reinterpret_cast<decltype(api_.name)>(dlsym(library, #symbol)); \
  if (!api_.name) unavailable("\"" + path + "\" has no function " #symbol "; reinstall the driver");
  HAMI_CUDA_FUNCTIONS(HAMI_CUDA_RESOLVE)
#undef HAMI_CUDA_RESOLVE
}

std::string Driver::reason(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api_.error_name(result, &name) != 0 || !name) return "CUDA error " + std::to_string(result);
  if (api_.error_text(result, &text) != 0 || !text) return name;
  return std::string(name) + ": " + text;
}

int Driver::device_count() const {
  int count = 0;
  check(api_.device_count(&count), "cannot count the CUDA devices");
  return count;
}

void Driver::check(CUresult result, const std::string& what) const {
  if (result == 0) return;
  if (is_sticky(result))
    throw CudaError(HAMI_INTERNAL,
                    what + ": " + reason(result) + "; CUDA does not work any more in this process: restart it", true);
  throw CudaError(result == kOutOfMemory ? HAMI_RESOURCE_EXHAUSTED : HAMI_INTERNAL, what + ": " + reason(result));
}

Device::Device(const Driver& driver, int index, const std::string& owner) : driver_(driver), index_(index) {
  const int count = driver.device_count();
  if (index < 0 || index >= count) {
    const std::string last = count > 1 ? " to cuda:" + std::to_string(count - 1) : "";
    throw CudaError(HAMI_FAILED_PRECONDITION, owner + ": device \"cuda:" + std::to_string(index) +
                                                  "\" is not available: this process sees cuda:0" + last);
  }
  driver.check(api().device_get(&device_, index), owner + ": cannot open the device");
  int has_pools = 0;
  driver.check(api().device_attribute(&has_pools, kMemoryPoolsSupported, device_), owner + ": cannot ask the device");
  if (!has_pools)
    throw CudaError(HAMI_UNAVAILABLE, owner + ": cuda:" + std::to_string(index) +
                                          " has no memory pools (cuMemAllocAsync), as with some virtual GPUs; use "
                                          "hami-torch on this machine");
  driver.check(api().context_retain(&context_, device_), owner + ": cannot use the device");
  keep_freed_memory();
}

// By default the pool returns freed memory to the device at each wait, and then has to get it again.
void Device::keep_freed_memory() {
  std::uint64_t bytes = UINT64_MAX;
  if (api().default_pool(&pool_, device_) == 0) api().set_pool_attribute(pool_, kReleaseThreshold, &bytes);
}

void Device::trim() const noexcept {
  if (pool_) api().trim_pool(pool_, 0);
}

Device::~Device() { api().context_release(device_); }

}  // namespace hami_cuda
