// Resolving paths, and checking that files exist.
#include "lang/paths.hpp"

#include <filesystem>
#include <system_error>

#include "value/error.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

bool is_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid) return false;
    at += point.bytes;
  }
  return true;
}

}  // namespace

std::string path_in(const std::string& folder, const std::string& path) {
  if (folder.empty() || path.empty() || path[0] == '/') return path;
  if (!is_utf8(folder))
    throw Error(ErrorCode::kConfig, in_quotes(path) +
                                        " is relative to the folder of its file, whose path is not UTF-8; " +
                                        "give an absolute path, or rename the folder");
  const std::string below = path.rfind("./", 0) == 0 ? path.substr(2) : path;
  return folder + (folder.back() == '/' ? "" : "/") + below;
}

void check_file(const std::string& path, const std::string& written, const std::string& what) {
  if (path.find('\0') != std::string::npos)
    throw Error(ErrorCode::kConfig, what + ": the path " + in_quotes(written, 200) + " contains a NUL character");
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) return;
  const std::string reason = std::filesystem::is_directory(status) ? "is a folder"
                             : status.type() == std::filesystem::file_type::not_found
                                 ? "does not exist"
                                 : "cannot be read: " + failure.message();
  std::error_code ignored;
  const std::string full = path[0] == '/' ? path : std::filesystem::absolute(path, ignored).string();
  throw Error(ErrorCode::kConfig,
              what + ": file " + in_quotes(written, 200) + " " + reason + " (looked for " + visible(full, 400) + ")");
}

}  // namespace hami
