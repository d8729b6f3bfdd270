// Registry: look-up of names, and names for expressions.

#include <pthread.h>

#include "backend/api.hpp"
#include "registry/api.hpp"

namespace hami {

// ---- Registry: definition and look-up.

const char* thread_mode_name(ThreadMode threads) noexcept {
  switch (threads) {
    case ThreadMode::kDedicated: return "dedicated";
    case ThreadMode::kSerialized: return "serialized";
    case ThreadMode::kConcurrent: return "concurrent";
  }
  return "dedicated";
}

std::optional<ThreadMode> thread_mode_of(std::string_view name) noexcept {
  for (ThreadMode threads : {ThreadMode::kDedicated, ThreadMode::kSerialized, ThreadMode::kConcurrent})
    if (name == thread_mode_name(threads)) return threads;
  return std::nullopt;
}

std::string show_brackets(const Brackets& brackets) {
  if (brackets.phases.empty()) return "";
  std::string text = "[";
  for (const Phase& phase : brackets.phases) {
    if (text.size() > 1) text += "; ";
    const char* noun = phase.kind == ItemKind::kBackend    ? "backend"
                       : phase.kind == ItemKind::kInstance ? "instance"
                                                           : "key";
    text += noun;
    if (phase.max == Phase::kMany)
      text += ", …";
    else
      for (std::size_t i = 1; i < phase.max; ++i)
        text += i < phase.min ? std::string(", ") + noun : std::string(", ") + noun + "?";
  }
  return text + "]";
}

// Holds the registry's mutex across a fork: the child must not inherit a mutex that no thread will release.
void Registry::lock_for_fork() HAMI_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.lock(); }
void Registry::unlock_after_fork() HAMI_NO_THREAD_SAFETY_ANALYSIS { instance().mutex_.unlock(); }

Registry& Registry::instance() {
  static Registry& registry = *new Registry;  // never destroyed: plugin classes may outlive static destructors
  static const int registered = pthread_atfork(&lock_for_fork, &unlock_after_fork, &unlock_after_fork);
  (void)registered;
  return registry;
}

void Registry::add_core(ClassPtr cls) {
  MutexLock lock(mutex_);
  for (const std::string& alias : cls->aliases) core_[alias] = cls;
  const std::string name = cls->name;
  core_[name] = std::move(cls);
}

// The replaced class is destroyed with the argument, after the lock: its destructor may call the registry.
void Registry::define(ClassPtr cls) {
  MutexLock lock(mutex_);
  if (!cls->device.empty()) {
    std::swap(for_devices_[{cls->name, cls->device}], cls);
    return;
  }
  if (core_.count(cls->name))
    throw Error(ErrorCode::kAlreadyExists, "\"" + cls->name + "\" is a backend of the core; choose another name");
  const std::string name = cls->name;
  std::swap(defined_[name], cls);
}

void Registry::set_finder(Finder finder) {
  MutexLock lock(mutex_);
  std::swap(finder_, finder);
}

void Registry::set_device_finder(DeviceFinder finder) {
  MutexLock lock(mutex_);
  std::swap(device_finder_, finder);
}

ClassPtr Registry::find_for_device(const std::string& name, const std::string& device) const {
  DeviceFinder finder;
  {
    MutexLock lock(mutex_);
    if (const auto found = for_devices_.find({name, device}); found != for_devices_.end()) return found->second;
    finder = device_finder_;
  }
  if (finder) return finder(name, device);
  throw MissingBackend{ErrorCode::kBackendNotFound, "no plugin serves " + device, "", ""};
}

ClassPtr Registry::find_known(const std::string& name) const {
  MutexLock lock(mutex_);
  if (const auto found = defined_.find(name); found != defined_.end()) return found->second;
  if (const auto found = core_.find(name); found != core_.end()) return found->second;
  return nullptr;
}

ClassPtr Registry::find(const std::string& name, const std::string& distribution, const Providers& providers) const {
  if (distribution.empty() && !providers.count(name))
    if (ClassPtr known = find_known(name)) return known;
  Finder finder;
  {
    MutexLock lock(mutex_);
    finder = finder_;
  }
  if (finder) return finder(name, distribution, providers);
  std::vector<std::string> names;
  for (const ClassPtr& cls : known()) names.push_back(cls->name);
  throw MissingBackend{ErrorCode::kBackendNotFound,
                       "backend \"" + name + "\" not found" + did_you_mean(near_names(name, names)), "", ""};
}

std::vector<ClassPtr> Registry::node_wrappers() const {
  MutexLock lock(mutex_);
  std::vector<ClassPtr> wrappers;
  for (const auto& [name, cls] : core_)
    if (name == cls->name && !cls->wraps_nodes_with.empty()) wrappers.push_back(cls);
  return wrappers;
}

std::vector<ClassPtr> Registry::known() const {
  MutexLock lock(mutex_);
  std::map<std::string, ClassPtr> all;
  for (const auto& [name, cls] : core_)
    if (name == cls->name) all[name] = cls;
  for (const auto& [name, cls] : defined_) all[name] = cls;
  std::vector<ClassPtr> list;
  for (auto& [name, cls] : all) list.push_back(cls);
  return list;
}

// ---- Generated backends: the class of an expression.

ClassPtr generated_class(GeneratedBody body, std::string owner) {
  parse(body.text);
  BackendClass cls;
  cls.name = body.name;
  cls.owner = std::move(owner);
  cls.doc = "Stands for " + body.text + ".";
  cls.free_args = true;
  cls.brackets = {false, {Phase{}}};
  cls.expand = [body = std::move(body)](PlanContext& context, const Expr& expr) {
    return context.plan_generated(body, expr);
  };
  return std::make_shared<BackendClass>(std::move(cls));
}

}  // namespace hami
