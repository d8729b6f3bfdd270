// Paths that a configuration gives: relative to the file that contains them.
#pragma once

#include <string>

namespace hami {

// The path of a value that is written in a file of `folder`; unchanged if `folder` is empty. Error(kConfig) if the result would
// not be text.
std::string path_in(const std::string& folder, const std::string& path);

// Error(kConfig) unless there is a file at `path`. `written`: as configured; `what` names the parameter in the message.
void check_file(const std::string& path, const std::string& written, const std::string& what);

}  // namespace hami
