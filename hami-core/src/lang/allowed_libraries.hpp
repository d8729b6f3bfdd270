// Which files with native code a configuration may name. A configuration is data, often from elsewhere, and loading a
// library runs it.
#pragma once

#include <string>

namespace hami {

// Allows a file, all files in a folder, or a name that the system's loader searches for ("libQnnHtp.so").
void allow_library(const std::string& path);

// Error(kConfig) if a file was not allowed, by allow_library or by the environment variable HAMI_ALLOWED_LIBRARIES: files
// and folders separated by ':'. Symbolic links and ".." are resolved. The variable is read once. `what` names the parameter
// in the message.
void check_library(const std::string& path, const std::string& what);

}  // namespace hami
