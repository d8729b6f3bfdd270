// Errors of this backend: each message starts with the name of the backend.
#pragma once

#include <hami/backend.hpp>
#include <string>

namespace hami_openvino {

[[noreturn]] inline void fail(std::int32_t code, const std::string& text) {
  throw hami::Error(code, "OpenvinoTensor: " + text);
}

// For mistakes in the configuration and for model files that cannot be used.
[[noreturn]] inline void fail_setup(const std::string& text) { fail(HAMI_FAILED_PRECONDITION, text); }

}  // namespace hami_openvino
