// Files that a configuration names: resolving, checking, and the allow list.
#include "lang/paths.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "value/api.hpp"

namespace hami {

// ---- Resolving paths, and checking that files exist.

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
  const std::string reason = std::filesystem::is_directory(status) ? "is a folder, name a file in it"
                             : status.type() == std::filesystem::file_type::not_found
                                 ? "does not exist"
                                 : "cannot be read: " + failure.message();
  std::error_code ignored;
  const std::string full = path[0] == '/' ? path : std::filesystem::absolute(path, ignored).string();
  throw Error(ErrorCode::kConfig,
              what + ": file " + in_quotes(written, 200) + " " + reason + " (looked for " + visible(full, 400) + ")");
}

// ---- The allow list: resolved paths of files and folders, and bare names.

namespace {

namespace fs = std::filesystem;

// A name without a slash is not a path: the system's loader searches for it.
bool is_bare_name(const std::string& path) { return path.find('/') == std::string::npos; }

// The form in which paths are compared.
std::string resolved(const std::string& path) {
  if (is_bare_name(path)) return path;
  std::error_code failure;
  fs::path canonical = fs::weakly_canonical(fs::absolute(path, failure), failure);
  if (failure) return "";
  if (!canonical.has_filename()) canonical = canonical.parent_path();  // of a folder that does not exist: "/a/b/"
  return canonical.string();
}

class AllowList {
 public:
  // Never destroyed: pipes may be planned until the process ends.
  static AllowList& instance() {
    static auto& list = *new AllowList;
    return list;
  }

  void add(const std::string& path) {
    MutexLock lock(mutex_);
    insert(path);
  }

  bool contains(const std::string& path) {
    const std::string wanted = resolved(path);
    if (wanted.empty()) return false;
    MutexLock lock(mutex_);
    if (paths_.count(wanted)) return true;
    if (is_bare_name(wanted)) return false;
    for (fs::path folder = fs::path(wanted).parent_path(); folder.has_relative_path(); folder = folder.parent_path())
      if (paths_.count(folder.string())) return true;
    return false;
  }

 private:
  AllowList() {
    // Holds the mutex across a fork: the child must not inherit a mutex that no thread will release.
    pthread_atfork([]() HAMI_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.lock(); },
                   []() HAMI_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.unlock(); },
                   []() HAMI_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.unlock(); });
    MutexLock lock(mutex_);
    const char* variable = std::getenv("HAMI_ALLOWED_LIBRARIES");
    const std::string text = variable ? variable : "";
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
      end = std::min(text.find(':', begin), text.size());
      insert(text.substr(begin, end - begin));
    }
  }

  void insert(const std::string& path) HAMI_REQUIRES(mutex_) {
    if (std::string form = resolved(path); !form.empty() && form != "/") paths_.insert(std::move(form));
  }

  Mutex mutex_;
  std::set<std::string> paths_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace

void allow_library(const std::string& path) { AllowList::instance().add(path); }

void check_library(const std::string& path, const std::string& what) {
  if (AllowList::instance().contains(path)) return;
  throw Error(ErrorCode::kConfig,
              what + " loads native code, which a configuration may do only from allowed files; allow " +
                  in_quotes(path, 200) +
                  " by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library");
}

}  // namespace hami
