// ONNX Runtime's library: its functions and its version. It is loaded when a model is first opened, and never unloaded.
#pragma once

#include "error.hpp"
#include "ort_api.hpp"

namespace hami_onnx {

using hami::Owned;

class Library {
 public:
  // For hami::library_at. hami::Error(HAMI_UNAVAILABLE) if the library cannot be loaded or is too old.
  explicit Library(const std::string& path);

  const Api& api() const noexcept { return api_; }
  const std::string& version() const noexcept { return version_; }
  OrtEnv* env() const noexcept { return env_; }
  bool has_plugin_providers() const noexcept { return api_.GetEpDevices != nullptr; }
  OrtAllocator* allocator() const noexcept { return allocator_; }
  const OrtMemoryInfo* cpu() const noexcept { return cpu_; }

  // Returns the message of a failed call, and frees its status; empty for success.
  std::string take_message(OrtStatus* status) const;
  // Throws hami::Error with the message of a failed call.
  void check(OrtStatus* status, std::int32_t code = HAMI_FAILED_PRECONDITION) const;

  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  Api api_;
  std::string version_;
  OrtEnv* env_ = nullptr;
  OrtAllocator* allocator_ = nullptr;
  OrtMemoryInfo* cpu_ = nullptr;
};

}  // namespace hami_onnx
