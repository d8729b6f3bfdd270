// The instances of a pipe by name, and backends that stand for them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "request/api.hpp"

namespace hami {

struct PipeContext;

// The instances of one pipe by name: `node.<node>`, `<node>.<i>`, and the queues that stand for instances.
// Written while the pipe is built. A node that is built already may look names up meanwhile: a backend that is being initialised
// can send it values.
class InstanceTable {
 public:
  void add(const std::string& name, BackendPtr backend);  // Error(kAlreadyExists)
  Backend* find(const std::string& name) const noexcept;  // a node also by its bare name
  Backend& get(const std::string& name) const;            // Error(kNotFound) with near names
  // The number of instances of a node is "auto": the node may have more than it uses.
  void mark_auto(const std::string& node);
  bool is_auto(const std::string& node) const noexcept;
  void clear() noexcept;  // destroys the instances in reverse order

  // False once the table is cleared: a pointer that was found by name may dangle.
  std::shared_ptr<const std::atomic<bool>> is_alive() const noexcept { return is_alive_; }
  // A thread that does not work for the pipe and uses an instance, on its stack from `enter` to `leave`.
  struct Visitor {
    const std::string& name;
    Visitor* previous = nullptr;
    Visitor* next = nullptr;
  };
  bool enter(Visitor& visitor) noexcept;  // false: no more, the pipe closes
  void leave(Visitor& visitor) noexcept;
  // Ends `enter`, and waits for the threads that have entered. Returns the instances that they still use at `until`. Throws Error
  // if interrupted: then it may be called again.
  std::vector<std::string> end_visits(Nanoseconds until);

  // A backend of `node` will call this name; `check_expected` verifies it once everything is registered.
  void expect(const std::string& name, const std::string& node);
  void check_expected() const;  // Error(kNotFound) for the first missing name

 private:
  Backend* find_locked(const std::string& name) const noexcept HAMI_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<std::pair<std::string, BackendPtr>> instances_ HAMI_GUARDED_BY(mutex_);
  std::map<std::string, Backend*> by_name_ HAMI_GUARDED_BY(mutex_);
  std::set<std::string> auto_nodes_ HAMI_GUARDED_BY(mutex_);
  const std::shared_ptr<std::atomic<bool>> is_alive_ = std::make_shared<std::atomic<bool>>(true);
  std::vector<std::pair<std::string, std::string>> expected_ HAMI_GUARDED_BY(mutex_);  // name and node
  bool visits_ended_ HAMI_GUARDED_BY(mutex_) = false;
  Visitor* visitors_ HAMI_GUARDED_BY(mutex_) = nullptr;
  CondVar left_;
};

// Instance proxies: backends that stand for an instance of a pipe.
// A backend that passes every call to the instance of that name, which may be registered later. It does not keep the pipe alive:
// once the pipe has ended, each call throws Error(kPipeClosed). May be called on any thread; the close of the pipe waits for
// threads that do not belong to it (InstanceTable::enter).
BackendPtr make_instance_proxy(const std::shared_ptr<PipeContext>& context, std::string name);

}  // namespace hami
