// OpenVINO's C library: its functions, its version and its codes of element types. It is loaded when a model is first
// opened, and never unloaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "element_types.hpp"
#include "openvino_c.hpp"

namespace hami_openvino {

class Library {
 public:
  // Returns the library at this path; loads it on first use.
  // hami::Error(HAMI_UNAVAILABLE) if it cannot be loaded or is too old.
  static const Library& load(const std::string& path);

  const Api& api() const noexcept { return api_; }
  ov_core_t* core() const noexcept { return core_; }
  const std::string& version() const noexcept { return version_; }
  std::vector<std::string> devices() const;

  // The type of a code in this version of OpenVINO; nullptr if it is not supported.
  const ElementType* find_type(ov_element_type_e code) const noexcept;
  ov_element_type_e code_of(const ElementType& type) const noexcept { return codes_.at(&type); }

  // OpenVINO's message about the last call that failed. OpenVINO keeps one message per process, not per thread: of two
  // calls that fail at the same time, one may get the message of the other.
  std::string last_error() const;
  // Throws hami::Error with `what` and last_error() if the status is a failure.
  void check(ov_status_e status, const std::string& what, std::int32_t code = HAMI_FAILED_PRECONDITION) const;

  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  explicit Library(const std::string& path);
  void read_version(const std::string& path);
  void read_type_codes();

  Api api_;
  ov_core_t* core_ = nullptr;
  std::string version_;
  std::map<const ElementType*, ov_element_type_e> codes_;
};

// Owns an OpenVINO object and frees it with the function that the library has for its type.
template <class T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(void (*free)(T*)) noexcept : free_(free) {}
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

 private:
  void (*free_)(T*) = nullptr;
  T* object_ = nullptr;
};

}  // namespace hami_openvino
