// InstanceDispatcher: a node's queue and instances: which instance runs which requests, when, and on which thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/api.hpp"
#include "schedule/batch_runner.hpp"
#include "schedule/node_scheduler.hpp"

namespace hami {

class InstanceDispatcher final : public Backend,
                                 public Service,
                                 public WaitLocation,
                                 public std::enable_shared_from_this<InstanceDispatcher> {
 public:
  ~InstanceDispatcher() override;
  void stop() noexcept override;
  bool join(Nanoseconds until) override;
  std::vector<std::string> running() override;
  bool is_quiet() override;
  bool start_waiting(bool below_min) override;
  bool is_asynchronous() const noexcept override { return runner_->admits_without_blocking(); }

  // Before the first request.
  void set_policy(const BatchingConfig& policy) {
    MutexLock lock(mutex_);
    scheduler_->set_batching(policy);
  }
  // The range of one forward: the declared range, limited by the node's `max`. Not declared: neither has a maximum.
  Range limits() const noexcept { return limits_; }

 private:
  using Index = NodeScheduler::Index;
  enum class OnFull { kBlock, kReject, kDropOldest };
  struct Instance {
    Backend* backend = nullptr;      // called on the worker if `own`, else on any thread
    Worker* worker = nullptr;        // the backend's own worker, or `helper`; set under mutex_
    std::unique_ptr<Worker> helper;  // started on first use
    bool own = false;
    bool acquires_gil = false;  // its forward starts by acquiring the GIL
    CondVar batch_ready;        // notified while the instance forms a batch
    RequestList batch;          // empty while the instance is idle
    std::optional<Index> next_dispatched;
  };
  // The instances that a thread has dispatched and still has to wake, without the mutex.
  struct Dispatched {
    std::optional<Index> first, last;
  };
  // What the arrival of the requests of one call leaves to do without the mutex.
  struct Arrival {
    Dispatched dispatched;
    RequestChain removed, refused, unreachable;
    std::optional<Error> interrupted;  // after Ctrl-C, no further request of the call waits
  };
  struct WaitOutcome {
    std::optional<Error> refused;  // the wait must end
    bool interrupted = false;      // because of Ctrl-C
  };

  void init_(Init& init) override;
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, InlinePolicy how) override;
  Range range_() const override { return limits_; }

  void add_instances(NodeScheduler& scheduler);
  void set_limits(const Params& params);
  void set_probes();
  bool admit(Request& request) noexcept;
  void set_costs(std::vector<Request*>& requests) noexcept;
  std::optional<Index> acquire_inline(Batch batch, InlinePolicy how);
  void set_classes(const Params& params, NodeScheduler& scheduler);
  void set_cost(const Params& params, NodeScheduler& scheduler);
  const std::string& location_name() const noexcept override { return node_; }
  const std::string& pipe_name() const noexcept override { return context_->name; }
  Blocked blocked(const std::vector<Index>& unavailable, Nanoseconds moment) override;
  void wake_capacity_waits() noexcept override;

  void enqueue(const std::vector<Request*>& requests, InlinePolicy how) noexcept;
  // Error(kQueueFull) if the queue has no memory for the request.
  void check_memory(const Request& request, RequestChain& removed) HAMI_REQUIRES(mutex_);
  void remove_expired(RequestChain& removed) noexcept HAMI_REQUIRES(mutex_);
  void reject_deadlocks(const std::vector<Request*>& requests) noexcept;
  void refuse_deadlocks() noexcept;
  void wait_for_capacity(const Request& request, Arrival& arrival) HAMI_REQUIRES(mutex_);
  WaitOutcome wait_unlocked(const Request& request, Nanoseconds moment, Arrival& arrival);
  bool is_full(LaneName lane) const noexcept HAMI_REQUIRES(mutex_);
  bool dispatch_idle(Dispatched& dispatched) noexcept HAMI_REQUIRES(mutex_);
  void wake(Dispatched& dispatched) noexcept;
  void wake(Index instance) noexcept;
  void post_to_worker(Index instance);
  void finish_inline(Index instance, std::size_t items, Nanoseconds took) noexcept;
  void fail_all(RequestChain& requests, const Error& error) noexcept;
  void notify_batch_ready() HAMI_REQUIRES(mutex_);
  void notify_capacity(const RequestChain& gone) noexcept HAMI_REQUIRES(mutex_);
  void notify_all_capacity() noexcept HAMI_REQUIRES(mutex_);

  void refuse_unreachable(Request& request, Nanoseconds moment) noexcept HAMI_REQUIRES(mutex_);
  void drop_oldest(LaneName lane, RequestChain& removed) noexcept HAMI_REQUIRES(mutex_);
  static std::string shown(Nanoseconds time);  // with about three digits
  void trace_forming(trace::Slice& slice) const noexcept;
  void warn_of_max_wait(Nanoseconds least) noexcept;

  struct LastBatch {
    std::size_t items = 0;  // of the batch that just ran; recorded once
    Nanoseconds took = 0;
    Nanoseconds least = 0;  // time of the smallest batch if it is longer than max_wait
    bool more = false;      // more requests were queued when it started
    NodeScheduler::StartReason reason{};
  };
  void run_instance_loop(Index instance) noexcept;
  // False: the instance is idle, and the dispatcher may be destroyed.
  bool next_batch(Index instance, LastBatch& last, GilPreacquire& gil, RequestChain& taken,
                  RequestChain& removed) noexcept;
  // Where a batch came from, or why it started, and its counter.
  struct Origin {
    NodeStats::Counter& counter;
    BatchRunner::StartReason reason;
  };
  // Returns how long it took. 0: its time says nothing about other batches, because it delivered parts, and waited for their
  // readers, or failed.
  Nanoseconds run(Index instance, Batch batch, Origin origin) noexcept;
  Origin started(NodeScheduler::StartReason reason) noexcept;
  void publish_policy() noexcept HAMI_REQUIRES(mutex_);
  void record_batch(Index instance, std::size_t items, Nanoseconds took, Nanoseconds moment) noexcept
      HAMI_REQUIRES(mutex_);

  std::string node_;
  trace::Name trace_name_ = 0;
  std::shared_ptr<PipeContext> context_;
  NodeStats* stats_ = nullptr;
  SharedTime* learned_ = nullptr;  // null: no node comes before this one
  std::optional<BatchRunner> runner_;
  Range limits_;
  const Remarks* why_one_ = nullptr;  // set if the backends take one item only
  bool non_blocking_ = true;
  bool on_device_ = false;  // an instance uses a device other than the CPU
  OnFull on_full_ = OnFull::kBlock;
  std::size_t max_queue_size_ = 0;
  std::size_t memory_limit_ = 0;  // in bytes; 0: none
  Nanoseconds max_wait_ = 0;
  std::atomic<bool> warned_{false};  // that max_wait is too short
  std::vector<std::unique_ptr<Instance>> instances_;

  Mutex mutex_;
  std::array<CondVar, kLanes> capacity_available_;
  CondVar all_idle_;
  std::optional<NodeScheduler> scheduler_ HAMI_GUARDED_BY(mutex_);
  std::uint64_t calls_ HAMI_GUARDED_BY(mutex_) = 0;
  std::size_t waits_inside_ HAMI_GUARDED_BY(mutex_) = 0;  // threads inside nodes that wait for capacity here
};

}  // namespace hami
