// Errors: each message starts with the name of the backend that users know.
#pragma once

#define HAMI_ABI_TARGET 1
#include <hami/backend.hpp>
#include <hami/c_library.hpp>
#include <string>

namespace hami_onnx {

[[noreturn]] inline void fail(std::int32_t code, const std::string& text) {
  throw hami::Error(code, "OnnxTensor: " + text);
}

}  // namespace hami_onnx
