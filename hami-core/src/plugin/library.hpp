// The library of a native plugin: its file, and what it declares.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/api.hpp"
#include "plugin/abi.hpp"

namespace hami {

// Checks the file of a shared library before the loader maps it.
// Throws Error(kPlugin) if the file is not a regular file with a whole shared library for this machine. The system's loader does
// not check the size: code or data that the file lacks ends the process with SIGBUS. A file that cannot be opened passes, because
// the loader reports the reason.
void check_elf_file(const std::string& path);

// NativePlugin: what a native plugin declares, as classes for the registry.
struct NativePlugin {
  std::string name;
  std::string version;
  std::string abi;  // the version that it was built with: "1.0"
  std::vector<ClassPtr> classes;
  std::string since{};  // the first release of the core that it runs with; empty if its entry has not filled a table
};

// Checks the tables, as far as this is possible. Error(kPlugin) says what is wrong. `library` is the path of its file, if it has
// one, for messages.
NativePlugin read_plugin(const hami_plugin& plugin, const std::string& owner, const std::string& library = "");

// The range that a class declares for all of its instances; empty if it declares none.
std::optional<Range> declared_range(const hami_backend_class& cls);
// A range as the ABI expresses it: without a limit, max is 0; HAMI_AUTO is auto.
Range range_of_abi(std::uint64_t min, std::uint64_t max) noexcept;

// Creates an instance. Fields of `cls` that its plugin does not have are zero. `origin` names the class and its plugin in messages.
BackendPtr make_native_backend(const hami_backend_class& cls, std::string origin = "a native backend");

// Loads the shared library of a native plugin.
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
