// Loads the shared library of a native plugin.
#pragma once

#include <stdexcept>
#include <string>

#include "plugin/native_class.hpp"

namespace hami {

// This core does not serve the ABI version that the plugin needs; the text stands after "…, which".
struct AbiRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string served_abi();  // "1.0"

// `path` must have a slash, or the system looks for it elsewhere. The library stays in memory for good.
// Throws AbiRefused, or Error(kPlugin).
NativePlugin load_library(const std::string& path, const std::string& owner);

// What its entry gives, for a library that is in memory.
NativePlugin enter_plugin(hami_entry entry, const std::string& owner);

}  // namespace hami
