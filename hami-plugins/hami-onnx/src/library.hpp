// ONNX Runtime's library: its functions and its version. It is loaded when a model is first opened, and never unloaded.
#pragma once

#include <string>
#include <utility>

#include "error.hpp"
#include "ort_api.hpp"

namespace hami_onnx {

class Library {
 public:
  // Returns the library at this path; loads it on first use. hami::Error(HAMI_UNAVAILABLE) if that is not possible.
  static const Library& load(const std::string& path);

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
  explicit Library(const std::string& path);

  Api api_;
  std::string version_;
  OrtEnv* env_ = nullptr;
  OrtAllocator* allocator_ = nullptr;
  OrtMemoryInfo* cpu_ = nullptr;
};

// Owns an object of the library and frees it with the function for its type.
template <class T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(void (*free)(T*), T* object = nullptr) noexcept : free_(free), object_(object) {}
  Owned(Owned&& other) noexcept : free_(other.free_), object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(free_, other.free_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_) free_(object_);
  }
  T* get() const noexcept { return object_; }
  T** out() noexcept { return &object_; }
  T* release() noexcept { return std::exchange(object_, nullptr); }

 private:
  void (*free_)(T*) = nullptr;
  T* object_ = nullptr;
};

}  // namespace hami_onnx
