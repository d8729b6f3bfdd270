// OpenVINO's C library: its functions, its version and its codes of element types. It is loaded when a model is first
// opened, and never unloaded.
#pragma once

#include <hami/c_library.hpp>
#include <map>
#include <string>
#include <vector>

#include "element_types.hpp"
#include "openvino_c.hpp"

namespace hami_openvino {

using hami::Owned;

class Library {
 public:
  // For hami::library_at. hami::Error(HAMI_UNAVAILABLE) if the library cannot be loaded or is too old.
  explicit Library(const std::string& path);

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
  void read_version(const std::string& path);
  void read_type_codes();

  Api api_;
  ov_core_t* core_ = nullptr;
  std::string version_;
  std::map<const ElementType*, ov_element_type_e> codes_;
};

}  // namespace hami_openvino
