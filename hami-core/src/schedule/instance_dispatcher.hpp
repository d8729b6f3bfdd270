// A node's queue and its instances: who runs which requests, when, and on which thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/worker.hpp"
#include "registry/init.hpp"

namespace hami {

// How a batch is filled from the queue. Set by Batching; without it a batch is what one call brought.
struct FillPolicy {
  bool gather = false;
  std::size_t max = 1;       // items gathered at most
  std::size_t min = 1;
  Nanoseconds company = 0;   // how long the oldest may wait for it
};

class InstanceDispatcher final : public Backend,
                                 public Stoppable,
                                 public std::enable_shared_from_this<InstanceDispatcher> {
 public:
  ~InstanceDispatcher() override;
  void stop() noexcept override;
  bool join(Nanoseconds until) noexcept override;
  bool owns_this_thread() noexcept override;
  bool is_asynchronous() const noexcept override { return true; }
  // True inside the forward of an instance of any node.
  static bool runs_on_this_thread() noexcept;

  // Before the first request.
  void set_policy(const FillPolicy& policy) { policy_ = policy; }
  // What one forward of an instance takes: the declared range, narrowed by the node's `max`.
  Range limits() const noexcept { return limits_; }
  bool declares_max() const noexcept { return declares_max_; }

 private:
  struct Instance {
    Backend* backend = nullptr;           // called on the worker's thread if `own`, else on any
    Worker* worker = nullptr;             // the backend's own, or `helper`; set under mutex_
    std::unique_ptr<Worker> helper;       // started when first needed
    bool own = false;
    std::condition_variable company;      // more has come while it gathers
  };
  struct Task {
    Ref<Request> request;
    Nanoseconds arrived;
    std::uint64_t call;  // the same for what came together
  };
  class Running;  // marks the thread that runs an instance

  void init_(Init& init) override;
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, Inline how) override;
  Range range_() const override { return limits_; }

  bool admit(Request& request) noexcept;
  Instance* claim_inline(std::size_t items, Inline how);
  void enqueue(const std::vector<Request*>& requests, Inline how);
  void make_room(std::unique_lock<std::mutex>& lock, Nanoseconds until, std::vector<Ref<Request>>& dropped,
                 std::optional<Error>& interrupted);
  Instance* pop_idle() noexcept;
  void wake(Instance& instance) noexcept;
  void release(Instance& instance) noexcept;
  static void fail_all(std::deque<Task>& tasks, const Error& error) noexcept;
  void give_back(std::vector<Ref<Request>>& dropped) noexcept;

  void serve(Instance& instance);
  // Moves the next batch to `taken`, and what needs no run any more to `dropped`. False: nothing is waiting.
  bool collect(Instance& instance, std::unique_lock<std::mutex>& lock, std::vector<Ref<Request>>& taken,
               std::vector<Ref<Request>>& dropped);
  std::size_t fill(Nanoseconds moment, std::size_t& items, std::vector<Ref<Request>>& dropped);
  bool drop_if_dead(std::size_t index, Nanoseconds moment, std::vector<Ref<Request>>& dropped);
  void drop_dead(std::vector<Ref<Request>>& dropped);
  void run(Instance& instance, Batch batch) noexcept;
  void run_alone(Instance& instance, Request& request) noexcept;

  std::string node_;
  std::shared_ptr<PipeContext> context_;
  NodeStats* stats_ = nullptr;
  FillPolicy policy_;
  Range limits_;
  bool declares_max_ = false;
  bool quick_ = false;
  bool isolate_ = true;
  bool reject_when_full_ = false;
  std::size_t queue_max_ = 0;
  std::vector<std::unique_ptr<Instance>> instances_;
  BackendPtr before_gathering_;  // PreCat
  BackendPtr before_instance_;   // CatedHandle

  std::mutex mutex_;  // guards all below
  std::condition_variable room_;
  std::condition_variable came_back_;
  std::deque<Task> queue_;
  std::vector<Instance*> idle_;
  Instance* gathering_ = nullptr;
  std::uint64_t calls_ = 0;
  bool stopping_ = false;
};

}  // namespace hami
