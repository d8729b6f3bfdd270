// Loads nvJPEG.
#include "nvjpeg.hpp"

#include <dlfcn.h>
#include <hami/abi.h>

namespace hami_cuda {
namespace {

constexpr unsigned kInterpolateChroma = 32;          // NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION
constexpr std::pair<int, int> kInterpolates{12, 1};  // the first version that has it

void* load(const std::string& library) {
  try {
    return hami::load_c_library(library, "nvJPEG");
  } catch (const hami::Error& error) {
    throw CudaError(error.code(), error.what());
  }
}

}  // namespace

Nvjpeg::Nvjpeg(const std::string& library) : library_(library) {
  void* const loaded = load(library);
#define HAMI_CUDA_NVJPEG_RESOLVE(symbol, name, parameters)                   \
  api_.name = reinterpret_cast<decltype(api_.name)>(dlsym(loaded, #symbol)); \
  if (!api_.name)                                                            \
    throw CudaError(HAMI_UNAVAILABLE, library + " has no function " #symbol "; install nvJPEG of CUDA 11.8 or newer");
  HAMI_CUDA_NVJPEG_FUNCTIONS(HAMI_CUDA_NVJPEG_RESOLVE)
#undef HAMI_CUDA_NVJPEG_RESOLVE
  api_.property(0, &version_.first);
  api_.property(1, &version_.second);
}

unsigned Nvjpeg::interpolation() const noexcept { return version_ >= kInterpolates ? kInterpolateChroma : 0; }

void Nvjpeg::check(nvjpegStatus status, const char* problem) const {
  if (status == kSuccess) return;
  const std::string reason = "nvJPEG (" + library_ + ") " + problem + ": status " + std::to_string(status);
  throw CudaError(status == kAllocatorFailure ? HAMI_RESOURCE_EXHAUSTED : HAMI_UNAVAILABLE, reason);
}

}  // namespace hami_cuda
