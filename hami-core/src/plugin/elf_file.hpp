// Checks the file of a shared library before the loader maps it.
#pragma once

#include <string>

namespace hami {

// Throws Error(kPlugin) if the file is not a regular file with a whole shared library for this machine. The system's loader does
// not check the size: code or data that the file lacks ends the process with SIGBUS. A file that cannot be opened passes, because
// the loader reports the reason.
void check_elf_file(const std::string& path);

}  // namespace hami
