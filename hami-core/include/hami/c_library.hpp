// For plugins over a library with a C interface, which they load when they first need it: the library, and owners of its objects.
#pragma once

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "hami/backend.hpp"

namespace hami {
inline namespace sdk {

// Loads a library, which is never unloaded. `path` is a default, or a parameter of the type library. Error(HAMI_UNAVAILABLE),
// "cannot load `what`: …".
inline void* load_c_library(const std::string& path, const std::string& what) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // the allow list covers parameters of that type
  if (library) return library;
  const char* const reason = dlerror();
  throw Error(HAMI_UNAVAILABLE, "cannot load " + what + ": " + (reason ? reason : path));
}

// Returns the only `Library(path)` of a path; made at its first use.
template <class Library>
const Library& library_at(const std::string& path) {
  static std::mutex mutex;  // guards `loaded`
  // Never destroyed, because threads of a library outlive main().
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Library>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Library>& library = loaded[path];
  if (!library) library = std::make_unique<Library>(path);
  return *library;
}

// Owns an object of a library and frees it with the function for its type.
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

}  // namespace sdk
}  // namespace hami
