// Names to backend classes: the core's own, those defined in this process, and whatever a finder brings.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/backend_class.hpp"
#include "base/mutex.hpp"

namespace hami {

// A name that no one provides, or whose provider is broken: what goes into the caret message.
struct MissingBackend {
  ErrorCode code;  // kBackendNotFound or kPlugin
  std::string headline;
  std::string hint;
  std::string cause;  // of several names with the same one the first is told; empty: nothing that others share
};

class Registry {
 public:
  // Asked for names that are neither defined nor the core's; throws MissingBackend.
  using Finder = std::function<ClassPtr(const std::string& name, const std::string& distribution,
                                        const std::map<std::string, std::string>& providers)>;

  static Registry& instance();

  void add_core(ClassPtr cls);  // under its aliases, too
  void define(ClassPtr cls);  // of this process; replaces one of that name for pipes built later
  void set_finder(Finder finder);

  // In the order of ABI.md §1: this process, the core, installed plugins. Throws MissingBackend.
  ClassPtr find(const std::string& name, const std::string& distribution,
                const std::map<std::string, std::string>& providers) const;
  ClassPtr find_known(const std::string& name) const;  // without asking the finder; null if absent
  std::vector<ClassPtr> node_wrappers() const;         // of the core, with `wraps_nodes_with`
  std::vector<ClassPtr> known() const;                 // sorted by name, aliases left out

 private:
  mutable Mutex mutex_;
  std::map<std::string, ClassPtr> core_ HAMI_GUARDED_BY(mutex_);
  std::map<std::string, ClassPtr> defined_ HAMI_GUARDED_BY(mutex_);
  Finder finder_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
