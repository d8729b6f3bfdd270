// The room `registry`: backend classes by name and by device, and names for expressions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/api.hpp"

namespace hami {

// Registry: backend classes by name: the core's own, those defined in this process, and those of a finder (plugins).
// A name without a provider, or with a provider that failed: the parts of the message.
struct MissingBackend {
  ErrorCode code;  // kBackendNotFound or kPlugin
  std::string headline;
  std::string hint;
  std::string cause;  // several names with the same cause are reported once; empty: not shared
};

class Registry {
 public:
  using Providers = std::map<std::string, std::string>;  // of [providers]: which of several distributions has a name
  // Finds names that are neither defined nor the core's; throws MissingBackend.
  using Finder =
      std::function<ClassPtr(const std::string& name, const std::string& distribution, const Providers& providers)>;

  // Finds the implementation of this name for a kind of device, such as "cuda"; throws MissingBackend.
  using DeviceFinder = std::function<ClassPtr(const std::string& name, const std::string& device)>;

  static Registry& instance();

  void add_core(ClassPtr cls);  // also under its aliases
  // For this process; replaces a class of that name, and for that device if it has one, for pipes built later.
  void define(ClassPtr cls);
  void set_finder(Finder finder);
  void set_device_finder(DeviceFinder finder);

  // Look-up order (reference/expressions.md): this process, the core, installed plugins. Throws MissingBackend.
  ClassPtr find(const std::string& name, const std::string& distribution, const Providers& providers) const;
  // The implementation of that name for a kind of device: of this process, of installed plugins. Throws MissingBackend.
  ClassPtr find_for_device(const std::string& name, const std::string& device) const;
  ClassPtr find_known(const std::string& name) const;  // without asking the finder; null if absent
  std::vector<ClassPtr> node_wrappers() const;         // of the core, with `wraps_nodes_with`
  std::vector<ClassPtr> known() const;                 // sorted by name, without aliases

 private:
  static void lock_for_fork();
  static void unlock_after_fork();

  mutable Mutex mutex_;
  std::map<std::string, ClassPtr> core_ HAMI_GUARDED_BY(mutex_);
  std::map<std::string, ClassPtr> defined_ HAMI_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, ClassPtr> for_devices_ HAMI_GUARDED_BY(mutex_);  // name and device
  Finder finder_ HAMI_GUARDED_BY(mutex_);
  DeviceFinder device_finder_ HAMI_GUARDED_BY(mutex_);
};

// Generated backends: names for expressions, which hami.generate registers.
struct GeneratedBody {
  std::string name;
  std::string text;                                     // the expression
  std::vector<std::pair<std::string, Value>> defaults;  // of parameters that the backends in the body declare
};

// A class that expands to its body when a pipe is planned. The items in its brackets go to the backend that is found by
// following the last item of the last phase of each bracket. Throws SyntaxError if `text` is not an expression.
ClassPtr generated_class(GeneratedBody body, std::string owner = "");

// The choice between a backend and those of its name for devices, by where the `data` of a request lies.
// A backend that passes requests whose data is in device memory to the implementation of its name for that device, and all
// others to `host`. An implementation is found and built when the first data on its device arrives: most pipes never see any.
// It gets the parameters of `host`, and `device`, such as "cuda:0". For kNone, the result is `host` itself.
BackendPtr choose_by_device(DeviceChoice choice, BackendPtr host);

// The backend for CPU memory of one that choose_by_device made; any other backend is returned as it is.
BackendPtr for_cpu_memory(BackendPtr backend);

}  // namespace hami
