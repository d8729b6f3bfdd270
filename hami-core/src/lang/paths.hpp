// Files that a configuration names: paths, and which files with native code are allowed.
#pragma once

#include <string>

namespace hami {

// Paths that a configuration gives: relative to the file that contains them.
// The path of a value that is written in a file of `folder`; unchanged if `folder` is empty. Error(kConfig) if the result would
// not be text.
std::string path_in(const std::string& folder, const std::string& path);

// Error(kConfig) unless there is a file at `path`. `written`: as configured; `what` names the parameter in the message.
void check_file(const std::string& path, const std::string& written, const std::string& what);

// Which files with native code a configuration may name. A configuration is data, often from elsewhere, and loading a
// library runs it.
// Allows a file, all files in a folder, or a name that the system's loader searches for ("libQnnHtp.so").
void allow_library(const std::string& path);

// Error(kConfig) if a file was not allowed, by allow_library or by the environment variable HAMI_ALLOWED_LIBRARIES: files
// and folders separated by ':'. Symbolic links and ".." are resolved. The variable is read once. `what` names the parameter
// in the message.
void check_library(const std::string& path, const std::string& what);

}  // namespace hami
