// The allow list: resolved paths of files and folders, and bare names.
#include "lang/allowed_libraries.hpp"

#include <pthread.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/mutex.hpp"
#include "value/error.hpp"
#include "value/visible.hpp"

namespace hami {
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
    std::istringstream text(variable ? variable : "");
    for (std::string path; std::getline(text, path, ':');) insert(path);
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
