// What the backends of one pipe share: the names of instances, the counters of nodes, and how the pipe ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "sync/queue.hpp"
#include "hami/sdk/request_store.hpp"
#include "observe/counters.hpp"
#include "observe/node_stats.hpp"
#include "backend/backend.hpp"
#include "backend/graph_spec.hpp"

namespace hami {

// Something with threads or waiting requests that must be told when the pipe closes.
class Service {
 public:
  virtual ~Service() = default;
  // Takes nothing more, fails what waits, lets what runs come back. Returns at once.
  virtual void stop() noexcept = 0;
  // Waits for what runs. False: it did not come back in time.
  virtual bool join(Nanoseconds until) noexcept = 0;
  // True on a thread that join waits for.
  virtual bool owns_this_thread() noexcept = 0;
};

class PipeContext {
 public:
  // Names are added while the pipe is built, by one thread at a time, and only read afterwards.
  void add(const std::string& name, BackendPtr backend);  // Error(kAlreadyExists)
  Backend* find(const std::string& name) const noexcept;
  Backend& get(const std::string& name) const;            // Error(kNotFound) with near names
  void clear_names() noexcept;                            // in reverse order
  // False once names are cleared: what was found by one may be gone.
  std::shared_ptr<const std::atomic<bool>> has_names() const noexcept { return has_names_; }
  // Someone will call this name: checked when everything is registered.
  void expect(const std::string& name, const std::string& node) { expected_.emplace_back(name, node); }
  void check_expected() const;                            // Error(kNotFound) for the first that is missing

  // The pipe's own store; its values are what the backends that keep something there say they are.
  RequestStore& store() noexcept { return store_; }
  // Held by backends that begin an id there for a value of theirs, or end one that holds nothing more: several may do so.
  std::mutex& store_ids() noexcept { return store_ids_; }
  // `name`, or with a number behind it if it was given away before.
  std::string unique(const std::string& name);
  // The pipe's queue of that name, made when it is first asked for. `max`, said once, is its room.
  Ref<Queue> queue(const std::string& name, std::optional<std::size_t> max = {});

  // How the nodes hang together; set before the first backend is made.
  GraphSpec graph;

  // The smallest `timeout` that a node asks for.
  Nanoseconds timeout() const noexcept { return timeout_; }
  void lower_timeout(Nanoseconds timeout) noexcept { timeout_ = std::min(timeout_, timeout); }

  // True while every instance is quick, so that a caller may keep its language's global lock.
  bool non_blocking() const noexcept { return non_blocking_; }
  void mark_blocking() noexcept { non_blocking_ = false; }

  // Whether an instance of the node is free now; true for a node without a dispatcher.
  bool has_free_instance(const std::string& node) const {
    const auto found = free_instance_.find(node);
    return found == free_instance_.end() || found->second();
  }
  void set_free_instance_probe(const std::string& node, std::function<bool()> probe) {
    free_instance_[node] = std::move(probe);
  }

  // `data` of the request that has waited longest for the node; empty if none does. Error(kNotFound) if the node has no queue.
  std::optional<Value> first_waiting(const std::string& node) const;
  void set_queue_probe(const std::string& node, std::function<std::optional<Value>()> probe) {
    first_waiting_[node] = std::move(probe);
  }

  NodeStats& stats(const std::string& node) { return stats_[node]; }
  const std::map<std::string, NodeStats>& all_stats() const noexcept { return stats_; }
  // Those that the backends of a node name themselves; asked for while the pipe is built.
  Counters& counters(const std::string& node) { return counters_[node]; }
  const std::map<std::string, Counters>& all_counters() const noexcept { return counters_; }

  void add_service(std::weak_ptr<Service> service) { services_.push_back(std::move(service)); }
  const std::vector<std::weak_ptr<Service>>& services() const noexcept { return services_; }

  // The parent of requests that no caller waits for; abandoned when the pipe's patience with its close is over.
  const Ref<Request>& root_request() const noexcept { return root_request_; }

  // What an init keeps that may be left while it runs: the pipe with its plan. Set before the first backend is made.
  std::shared_ptr<void> pipe() const noexcept { return pipe_.lock(); }
  void set_pipe(std::weak_ptr<void> pipe) noexcept { pipe_ = std::move(pipe); }
  // An init was left: from now on it alone may touch what it shares with its node. `counted` goes when all of the pipe has.
  void leave(std::shared_ptr<void> counted) noexcept { left_ = std::move(counted); }
  bool left() const noexcept { return left_ != nullptr; }

  // How long a close may take where nobody says it.
  static constexpr Nanoseconds kCloseTimeout = 10'000'000'000;
  // When a close must be through; kNever while the pipe is open. What was made of one that never opened has that long each.
  Nanoseconds close_until() const noexcept { return opened_ ? close_until_.load() : after(kCloseTimeout); }
  void set_close_until(Nanoseconds until) noexcept { close_until_ = until; }
  void set_opened() noexcept { opened_ = true; }

  void report_abandoned(std::string what);
  std::vector<std::string> take_abandoned();

 private:
  std::shared_ptr<void> left_;  // the last to go
  std::vector<std::pair<std::string, BackendPtr>> names_;
  std::map<std::string, Backend*> by_name_;
  const std::shared_ptr<std::atomic<bool>> has_names_ = std::make_shared<std::atomic<bool>>(true);
  std::vector<std::pair<std::string, std::string>> expected_;
  std::map<std::string, NodeStats> stats_;
  std::map<std::string, Counters> counters_;
  std::vector<std::weak_ptr<Service>> services_;
  std::map<std::string, std::function<bool()>> free_instance_;
  std::map<std::string, std::function<std::optional<Value>()>> first_waiting_;
  Nanoseconds timeout_ = kNever;
  bool non_blocking_ = true;
  std::weak_ptr<void> pipe_;
  std::atomic<bool> opened_{false};
  std::atomic<Nanoseconds> close_until_{kNever};
  const Ref<Request> root_request_ = make_counted<Request>();
  RequestStore store_;
  std::mutex store_ids_;
  std::mutex mutex_;  // guards all below
  std::map<std::string, std::size_t> given_away_;
  std::map<std::string, Ref<Queue>> queues_;
  std::set<std::string> declared_queues_;  // whose room was said
  std::vector<std::string> abandoned_;
};

}  // namespace hami
