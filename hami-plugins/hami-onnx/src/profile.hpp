// The times of a session's operators, as ONNX Runtime writes them.
#pragma once

#include <string>

#include "library.hpp"

namespace hami_onnx {

// Ends the profile of a session, and writes it to `path` with the moment of its start on the monotonic clock, which the
// timeline of HAMI uses. A file that cannot be written is left out.
void write_profile(const Library& library, OrtSession* session, const std::string& path) noexcept;

}  // namespace hami_onnx
