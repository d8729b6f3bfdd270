// Loads the shared library of a native plugin.
#pragma once

#include <stdexcept>
#include <string>

#include "plugin/native_class.hpp"

namespace hami {

// The plugin needs an ABI version that this core does not serve. Its text follows "…, which" in messages.
struct IncompatibleAbi : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string served_abi();  // the newest ABI version that this core serves: "1.0"

// `path` must contain a slash; otherwise the system's library folders are searched. The library is never unloaded.
// Throws IncompatibleAbi, or Error(kPlugin).
NativePlugin load_library(const std::string& path, const std::string& owner);

// Calls the entry of a library, which is loaded from the file `library`, and reads its tables. Throws as load_library.
NativePlugin call_entry(hami_entry entry, const std::string& owner, const std::string& library = "this program");

}  // namespace hami
