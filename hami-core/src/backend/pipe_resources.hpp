// PipeResources: what the backends of one pipe share: store, queues, statistics, and questions of one node about another.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/mutex.hpp"
#include "hami/sdk/request_store.hpp"
#include "observe/counters.hpp"
#include "observe/node_stats.hpp"
#include "observe/node_times.hpp"
#include "observe/remarks.hpp"
#include "sync/queue.hpp"

namespace hami {

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

}  // namespace hami
