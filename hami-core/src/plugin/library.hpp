// Loads the shared library of a native plugin.
#pragma once

#include <stdexcept>
#include <string>

#include "plugin/native_class.hpp"

namespace hami {

// This core does not serve the ABI version that the plugin needs. Its text follows "…, which" in messages.
struct AbiRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string served_abi();  // "1.0"

// `path` must contain a slash; otherwise the system searches for it. The library is never unloaded.
// Throws AbiRefused, or Error(kPlugin).
NativePlugin load_library(const std::string& path, const std::string& owner);

// The result of the entry of a loaded library.
NativePlugin enter_plugin(hami_entry entry, const std::string& owner);

}  // namespace hami
