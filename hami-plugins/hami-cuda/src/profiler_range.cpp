// Finds NVTX, which hands ranges to the profiler that the environment names.
#include "profiler_range.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace hami_cuda {
namespace {

struct Nvtx {
  int (*push)(const char* name) = nullptr;
  int (*pop)() = nullptr;
};

// Without functions, if no profiler started this process. hami_cuda/_nvtx.py loads that of a package before.
const Nvtx& nvtx() {
  static const Nvtx found = [] {
    Nvtx functions;
    if (!std::getenv("NVTX_INJECTION64_PATH")) return functions;
    for (const char* const name : {"libnvtx3interop.so.1", "libnvToolsExt.so.1"})
      if (void* const library = dlopen(name, RTLD_NOW)) {  // one of these two names
        functions.push = reinterpret_cast<decltype(functions.push)>(dlsym(library, "nvtxRangePushA"));
        functions.pop = reinterpret_cast<decltype(functions.pop)>(dlsym(library, "nvtxRangePop"));
        if (functions.push && functions.pop) return functions;
      }
    return Nvtx{};
  }();
  return found;
}

}  // namespace

ProfilerRange::ProfilerRange(std::string_view node, const std::string& backend) {
  if (nvtx().push) nvtx().push((std::string(node) + ": " + backend).c_str());
}

ProfilerRange::~ProfilerRange() {
  if (nvtx().pop) nvtx().pop();
}

}  // namespace hami_cuda
