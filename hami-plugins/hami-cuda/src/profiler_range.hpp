// ProfilerRange: work of this thread as a range of NVTX, under a profiler of NVIDIA.
#pragma once

#include <string>
#include <string_view>

namespace hami_cuda {

// Its name: "node: Backend". Without a profiler, it costs one look at a constant.
class ProfilerRange {
 public:
  ProfilerRange(std::string_view node, const std::string& backend);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace hami_cuda
