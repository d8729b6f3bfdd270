// The programs and libraries that are built for the tests.
#pragma once

#include <filesystem>
#include <string>

namespace hami::testing {

// Returns the path of one: they lie beside the running program, so that compiled files name no folder.
inline std::string built(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

}  // namespace hami::testing
