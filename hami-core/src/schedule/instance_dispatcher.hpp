// A node's queue and its instances: who runs which requests, when, and on which thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "sync/worker.hpp"
#include "backend/init.hpp"
#include "schedule/batch_runner.hpp"
#include "schedule/node_scheduler.hpp"

namespace hami {

class InstanceDispatcher final : public Backend,
                                 public Stoppable,
                                 public Place,
                                 public std::enable_shared_from_this<InstanceDispatcher> {
 public:
  ~InstanceDispatcher() override;
  void stop() noexcept override;
  bool join(Nanoseconds until) noexcept override;
  bool owns_this_thread() noexcept override;
  bool is_asynchronous() const noexcept override { return runner_->admits_quickly(); }

  // Before the first request.
  void set_policy(const FillPolicy& policy) { scheduler_->set_policy(policy); }
  // What one forward of an instance takes: the declared range, narrowed by the node's `max`.
  Range limits() const noexcept { return limits_; }
  bool declares_max() const noexcept { return declares_max_; }

 private:
  using Index = NodeScheduler::Index;
  using Requests = NodeScheduler::Requests;
  struct Instance {
    Backend* backend = nullptr;           // called on the worker's thread if `own`, else on any
    Worker* worker = nullptr;             // the backend's own, or `helper`; set under mutex_
    std::unique_ptr<Worker> helper;       // started when first needed
    bool own = false;
    bool begins_locked = false;           // its forward does, and no hook runs before it
    std::condition_variable company;      // enough has come while it gathers
  };

  void init_(Init& init) override;
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, Inline how) override;
  Range range_() const override { return limits_; }

  void add_instances();
  void set_limits(const Params& params);
  void set_probes();
  std::optional<Index> claim_inline(std::size_t items, Inline how);
  const std::string& place_name() const noexcept override { return node_; }
  void add_stuck(const std::vector<Index>& lost, Nanoseconds moment, std::vector<const Ask*>& stuck) override;

  void enqueue(const std::vector<Request*>& requests, Inline how);
  void refuse_circles(const std::vector<Request*>& requests);
  void make_room(std::unique_lock<std::mutex>& lock, Nanoseconds until, std::vector<Index>& summoned, Requests& dropped,
                 std::optional<Error>& interrupted);
  void wake(Index instance) noexcept;
  void wake(const std::vector<Index>& instances) noexcept;
  void release(Index instance, std::size_t items, Nanoseconds took) noexcept;
  void fail_all(Requests& requests, const Error& error) noexcept;
  void give_back(Requests& dropped) noexcept;
  void notify_company();

  struct Ran {
    std::size_t items = 0;     // of the batch just run; learned from once
    Nanoseconds took = 0;
    std::size_t released = 0;  // items whose callers may come back together
    bool more = false;         // others waited when it began
  };
  void serve(Index instance);
  // False: the instance rests, and the dispatcher may be gone.
  bool next_batch(Index instance, Ran& last, LockAhead& lock_ahead, Requests& taken, Requests& dropped);
  Nanoseconds run(Index instance, Batch batch) noexcept;
  void learn(Index instance, std::size_t items, Nanoseconds took) noexcept;

  std::string node_;
  std::shared_ptr<PipeContext> context_;
  NodeStats* stats_ = nullptr;
  std::optional<BatchRunner> runner_;
  Range limits_;
  bool declares_max_ = false;
  bool quick_ = true;
  bool reject_when_full_ = false;
  std::size_t queue_max_ = 0;
  std::vector<std::unique_ptr<Instance>> instances_;

  std::mutex mutex_;  // guards all below
  std::condition_variable room_;
  std::condition_variable came_back_;
  std::optional<NodeScheduler> scheduler_;
  std::uint64_t calls_ = 0;
};

}  // namespace hami
