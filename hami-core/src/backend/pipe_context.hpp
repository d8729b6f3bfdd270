// PipeContext: what the backends of one pipe share and can reach.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/instances.hpp"
#include "hami/sdk/request_store.hpp"
#include "observe/api.hpp"
#include "request/api.hpp"

namespace hami {

// GraphSpec: how the nodes of a pipe are connected, as configured by `next`, `map`, `accept_skipped` and `or`.
struct MapEntry {
  std::string source;  // a node
  std::string from;    // a key of that node's result
  std::string to;      // the key it becomes
};

struct GraphNode {
  std::string name;
  std::vector<std::string> next;
  std::vector<MapEntry> map;  // empty: a copy of the result of its only predecessor
  bool is_or = false;
  bool is_plain = false;         // has the default node_entrypoint, so that no request passes it without a run
  bool accepts_skipped = false;  // runs with what its `map` delivers if a node before it was skipped
};

using GraphSpec = std::vector<GraphNode>;

// The names of a node's own queues: `<node>.queue`, and `<node>.queue.<i>` for its instance i.
struct NodeQueueName {
  std::string node;
  std::string instance;  // "<node>.<i>"; empty: the queue that all instances share
};

// Empty if `name` is not that of a node's queue.
std::optional<NodeQueueName> node_queue_name(const std::string& name);

// How one pipe ends: its services, its deadline for closing, and the backends that were abandoned.
// A part of a pipe with threads or waiting requests, which ends when the pipe closes.
class Service {
 public:
  virtual ~Service() = default;
  // Called once, when all backends of the pipe are built. Throws Error if the system provides no thread.
  virtual void start() {}
  // Accepts nothing more and fails queued requests; running ones may finish. Returns at once.
  virtual void stop() noexcept = 0;
  // Waits until running requests finish, and ends its threads. False: they did not finish in time. Throws Error if interrupted:
  // then it may be called again.
  virtual bool join(Nanoseconds until) = 0;
  // The backends that run, for messages.
  virtual std::vector<std::string> running() = 0;

  // For a pipe that closes. True while no thread works here and none will, unless a further request comes or time passes.
  virtual bool is_quiet() = 0;
  // Starts the batch that waits for further requests, because none will come. With `below_min` it fails if it is below the
  // minimum size; without, such a batch waits on. False: it started nothing.
  virtual bool start_waiting(bool /*below_min*/) { return false; }
};

class PipeShutdown {
 public:
  void add_service(std::weak_ptr<Service> service) { services_.push_back(std::move(service)); }
  const std::vector<std::weak_ptr<Service>>& services() const noexcept { return services_; }

  // The parent of requests without a caller; abandoned when the time for the pipe's close is over.
  const Ref<Request>& root_request() const noexcept { return root_request_; }

  // What an init that may be detached keeps alive: the pipe with its plan. Set before the first backend is built.
  std::shared_ptr<void> pipe() const noexcept { return pipe_.lock(); }
  void set_pipe(std::weak_ptr<void> pipe) noexcept { pipe_ = std::move(pipe); }
  // An init continues without its caller: from now on it alone may touch what it shares with its node. `detached_init` is
  // destroyed after everything else of the pipe.
  void detach_init(std::shared_ptr<void> detached_init) noexcept {
    detached_init_ = std::move(detached_init);
    has_detached_init_ = true;
  }
  bool has_detached_init() const noexcept { return has_detached_init_; }

  // How long a close may take unless the caller says otherwise: 10 s.
  static constexpr Nanoseconds kCloseTimeout = 10'000'000'000;
  // When a close must have finished; kNever while the pipe is open. The backends of a pipe that failed to build have
  // kCloseTimeout each.
  Nanoseconds close_until() const noexcept { return opened_ ? close_until_.load() : after(kCloseTimeout); }
  void set_close_until(Nanoseconds until) noexcept { close_until_ = until; }
  void set_opened() noexcept { opened_ = true; }
  bool opened() const noexcept { return opened_; }

  // Names of backends that did not finish in time. Without memory for a name it is missing.
  void report_abandoned(const std::string& name) noexcept;
  std::vector<std::string> take_abandoned();

 private:
  std::shared_ptr<void> detached_init_;
  std::atomic<bool> has_detached_init_{false};
  std::vector<std::weak_ptr<Service>> services_;
  std::weak_ptr<void> pipe_;
  std::atomic<bool> opened_{false};
  std::atomic<Nanoseconds> close_until_{kNever};
  const Ref<Request> root_request_ = make_counted<Request>();
  Mutex mutex_;
  std::vector<std::string> abandoned_ HAMI_GUARDED_BY(mutex_);
};

// PipeResources: what the backends of one pipe share: store, queues, statistics, and questions of one node about another.
class PipeResources {
 public:
  // The pipe's own store. Each backend defines the values that it keeps there.
  RequestStore& store() noexcept { return *store_; }
  // For a program, which may keep it for longer than the pipe exists.
  const std::shared_ptr<RequestStore>& shared_store() const noexcept { return store_; }
  // Held while a backend creates an id in the store for a value of its own, or removes an id that holds nothing more:
  // several backends may do so for one id.
  Mutex& store_ids() noexcept { return store_ids_; }
  // `name`, or `name (2)` and so on if it was given out before.
  std::string unique(const std::string& name);
  // The pipe's queue of that name, created on first use. `max`, declared once, is its capacity; Error(kConfig) if two
  // declarations differ.
  Ref<Queue> queue(const std::string& name, std::optional<std::size_t> max = {});

  // The same for code of authors. Error(kInvalidArgument) for the queue of a node: a value that is pushed there becomes a request,
  // which a push does not create.
  Ref<Queue> queue_by_name(const std::string& name);

  // Makes a queue of the program the pipe's queue of that name; before any backend is initialised.
  void share_queue(const std::string& name, Ref<Queue> queue);

  // The smallest `timeout` of all nodes.
  Nanoseconds timeout() const noexcept { return timeout_; }
  void lower_timeout(Nanoseconds timeout) noexcept { timeout_ = std::min(timeout_, timeout); }

  // True while every instance is non-blocking, so that a caller may keep the GIL.
  bool non_blocking() const noexcept { return non_blocking_; }
  void mark_blocking() noexcept { non_blocking_ = false; }

  // Whether an instance of the node is idle; true for a node without a dispatcher.
  bool has_free_instance(const std::string& node) const;
  void set_free_instance_probe(const std::string& node, std::function<bool()> probe);
  // `data` of the request that has waited longest for the node; empty if none waits. Error(kNotFound) if the node has no
  // queue.
  std::optional<Value> first_waiting(const std::string& node) const;
  void set_queue_probe(const std::string& node, std::function<std::optional<Value>()> probe);

  NodeStats& stats(const std::string& node) { return stats_[node]; }
  const std::map<std::string, NodeStats>& all_stats() const noexcept { return stats_; }
  NodeTimes& times(const std::string& node) { return times_[node]; }
  const std::map<std::string, NodeTimes>& all_times() const noexcept { return times_; }
  // Counters that the backends of a node name themselves; asked for while the pipe is built.
  Counters& counters(const std::string& node) { return counters_[node]; }
  const std::map<std::string, Counters>& all_counters() const noexcept { return counters_; }
  // What the backends of a node say about it; asked for while the pipe is built.
  Remarks& remarks(const std::string& node) { return remarks_[node]; }
  const std::map<std::string, Remarks>& all_remarks() const noexcept { return remarks_; }

 private:
  std::map<std::string, NodeStats> stats_;
  std::map<std::string, NodeTimes> times_;
  std::map<std::string, Counters> counters_;
  std::map<std::string, Remarks> remarks_;
  Nanoseconds timeout_ = kNever;
  bool non_blocking_ = true;
  const std::shared_ptr<RequestStore> store_ = std::make_shared<RequestStore>();
  Mutex store_ids_;
  mutable Mutex mutex_;
  std::map<std::string, std::function<bool()>> free_instance_ HAMI_GUARDED_BY(mutex_);
  std::map<std::string, std::function<std::optional<Value>()>> first_waiting_ HAMI_GUARDED_BY(mutex_);
  std::map<std::string, std::size_t> given_out_ HAMI_GUARDED_BY(mutex_);
  std::map<std::string, Ref<Queue>> queues_ HAMI_GUARDED_BY(mutex_);
  std::set<std::string> declared_queues_ HAMI_GUARDED_BY(mutex_);  // whose capacity was declared
};

// What the backends of one pipe can reach: each other by name, shared resources, the graph, and the pipe's shutdown.
// Members are destroyed from the last to the first: instances may use resources until their end.
struct PipeContext {
  std::string name;  // of the pipe, for messages; set before the first backend is built
  PipeShutdown shutdown;
  PipeResources resources;
  InstanceTable instances;
  GraphSpec graph;  // how the nodes are connected; set before the first backend is built
};

}  // namespace hami
