// Loads the CUDA driver with dlopen, checks its version, and opens devices.
#include "driver.hpp"

#include <dlfcn.h>
#include <hami/abi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace hami_cuda {
namespace {

constexpr int kMinVersion = 11080;  // the version of NVRTC that compiled the kernels

[[noreturn]] void unavailable(const std::string& text) { throw CudaError(HAMI_UNAVAILABLE, text); }

// Errors after which the context is lost: illegal address, launch timeout, assertion, hardware fault, failed launch, …
bool is_sticky(CUresult result) { return result == 700 || result == 702 || (result >= 710 && result <= 721); }

std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

// One part in so many of the memory of a device stays with the process when it is freed: enough for the batches of
// images, and most of the device stays free for other processes.
constexpr std::size_t kKeptShare = 8;

constexpr const char* kLimit = "HAMI_CUDA_MEMORY_LIMIT";

// The environment variable: a number of bytes, with a unit such as GiB.
std::size_t memory_limit() {
  const char* const text = std::getenv(kLimit);
  if (!text || !*text) return SIZE_MAX;
  constexpr std::pair<std::string_view, std::size_t> kUnits[] = {
      {"", 1},      {"KiB", 1U << 10}, {"MiB", 1U << 20}, {"GiB", 1U << 30},
      {"kB", 1000}, {"MB", 1000000},   {"GB", 1000000000}};
  const std::string_view given(text);
  std::size_t number = 0;
  const auto [stop, error] = std::from_chars(given.data(), given.data() + given.size(), number);
  const std::string_view rest = given.substr(static_cast<std::size_t>(stop - given.data()));
  if (error == std::errc() && number > 0)
    for (const auto& [unit, factor] : kUnits)
      if (unit == rest && number <= SIZE_MAX / factor) return number * factor;
  throw CudaError(HAMI_FAILED_PRECONDITION, "environment variable " + std::string(kLimit) +
                                                " must be a number of bytes, or one with a unit such as 4GiB, got \"" +
                                                std::string(given) + "\"");
}

}  // namespace

Driver::Driver(const std::string& path) {
  // A default, or a parameter of the type library: it is on the allow list.
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
  if (is_sticky(result)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sticky_error_.empty())
      sticky_error_ = what + ": " + reason(result) + "; CUDA does not work any more in this process: restart it";
    is_usable_ = false;
    throw CudaError(HAMI_INTERNAL, sticky_error_, true);
  }
  throw CudaError(result == kOutOfMemory ? HAMI_RESOURCE_EXHAUSTED : HAMI_INTERNAL, what + ": " + reason(result));
}

void Driver::check_usable() const {
  if (is_usable_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  throw CudaError(HAMI_INTERNAL, sticky_error_, true);
}

Device::Device(const Driver& driver, int index, const std::string& owner)
    : driver_(driver), index_(index), limit_(memory_limit()) {
  const int count = driver.device_count();
  if (index < 0 || index >= count) {
    const std::string last = count > 1 ? " to cuda:" + std::to_string(count - 1) : "";
    throw CudaError(HAMI_FAILED_PRECONDITION, owner + ": device \"cuda:" + std::to_string(index) +
                                                  "\" is not available: this process sees cuda:0" + last);
  }
  driver.check(api().device_get(&device_, index), owner + ": cannot open the device");
  int has_pools = 0;
  driver.check(api().device_attribute(&has_pools, kMemoryPoolsSupported, device_), owner + ": cannot ask the device");
  driver.check(api().context_retain(&context_, device_), owner + ": cannot use the device");
  std::size_t total = 0;
  driver.check(api().device_memory(&total, device_), owner + ": cannot ask the device");
  kept_ = std::min(limit_, total / kKeptShare);
  if (has_pools)
    allocator_ = std::make_unique<PoolAllocator>(api(), device_, kept_);
  else  // as with some virtual GPUs
    allocator_ = std::make_unique<CachingAllocator>(api());
}

CUdeviceptr Device::allocate(std::size_t size, CUstream stream) const {
  const std::string what = "cannot allocate " + std::to_string(size) + " bytes on the device";
  const std::size_t before = used_.fetch_add(size);
  if (size > limit_ || before > limit_ - size) {
    used_ -= size;
    throw CudaError(HAMI_RESOURCE_EXHAUSTED, what + ": " + std::to_string(before) + " of " + std::to_string(limit_) +
                                                 " bytes are in use, the limit that " + kLimit + " sets");
  }
  CUdeviceptr start = 0;
  CUresult result = allocator_->allocate(&start, size, stream);
  if (result == kOutOfMemory) {
    api().stream_synchronize(stream);  // memory that is being freed is free afterwards
    trim();
    result = allocator_->allocate(&start, size, stream);
    if (result != 0) trim();  // a pool keeps what it got from the device before it failed
  }
  if (result != 0) used_ -= size;
  driver_.check(result, what);
  const std::size_t now = before + size;
  for (std::size_t peak = peak_; peak < now && !peak_.compare_exchange_weak(peak, now);) continue;
  return start;
}

void Device::release(CUdeviceptr start, std::size_t size, CUstream stream) const noexcept {
  allocator_->release(start, stream);
  used_ -= size;
  if (peak_ > kept_ && used_ <= kept_) allocator_->trim(kept_);
}

void Device::return_surplus() const noexcept {
  if (peak_ <= kept_ || used_ > kept_) return;
  allocator_->trim(kept_);
  peak_ = used_.load();
}

Device::~Device() { api().context_release(device_); }

}  // namespace hami_cuda
