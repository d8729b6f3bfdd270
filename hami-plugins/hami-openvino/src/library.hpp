// OpenVINO's library, loaded when a model is first opened and never closed: functions, version, numbers of element
// types.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "elements.hpp"
#include "openvino_c.hpp"

namespace hami_openvino {

class Library {
 public:
  // The one of this path, loaded if it is not yet. hami::Error(HAMI_UNAVAILABLE) if that cannot be, or it is too old.
  static Library& of(const std::string& path);

  const Api& api() const noexcept { return api_; }
  ov_core_t* core() const noexcept { return core_; }
  const std::string& version() const noexcept { return version_; }
  std::vector<std::string> devices() const;

  // What a number, or a type, is in this version. nullptr: nothing that is known here.
  const Element* element(ov_element_type_e number) const noexcept;
  ov_element_type_e number(const Element& element) const noexcept { return numbers_.at(&element); }

  // Why the last call failed, in OpenVINO's words. They are kept for the process, not for the thread: of two calls that
  // fail at one moment, one may be told the other's.
  std::string reason() const;
  // hami::Error of `what` and the reason, if the status is a failure.
  void check(ov_status_e status, const std::string& what, std::int32_t code = HAMI_FAILED_PRECONDITION) const;

  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  explicit Library(const std::string& path);
  void read_version(const std::string& path);
  void read_numbers();

  Api api_;
  ov_core_t* core_ = nullptr;
  std::string version_;
  std::map<const Element*, ov_element_type_e> numbers_;
};

// Frees an object of OpenVINO by the function that the library has for it.
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
