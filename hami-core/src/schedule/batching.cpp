// Batching: sets how the injected dispatcher forms batches. It adds no hop and no thread.

#include <algorithm>
#include <memory>

#include "schedule/api.hpp"
#include "schedule/instance_dispatcher.hpp"

namespace hami {
namespace {

class Batching final : public Backend {
 public:
  bool is_asynchronous() const noexcept override { return dispatcher_ && dispatcher_->is_asynchronous(); }

 private:
  void init_(Init& init) override {
    batching_timeout_ = from_milliseconds(init.params().get<double>("batching_timeout"));
    const std::string batching = init.params().get<std::string>("batching");
    mode_ = batching == "adaptive" ? BatchingMode::kAdaptive
            : batching == "greedy" ? BatchingMode::kGreedy
                                   : BatchingMode::kPerCall;
  }

  void inject_dependency_(const BackendPtr& dependency) override {
    dispatcher_ = std::dynamic_pointer_cast<InstanceDispatcher>(dependency);
    if (!dispatcher_)
      throw Error(ErrorCode::kConfig, "Batching takes an InstanceDispatcher, got " + dependency->label());
    BatchingConfig policy;
    policy.mode = mode_;
    // Without a declared range, only the node's own `max` allows batches.
    const Range limits = dispatcher_->limits();
    policy.is_auto = limits.is_auto();
    policy.max = policy.is_auto ? std::max(policy::kAutoMax, limits.min) : limits.declared() ? limits.max : 1;
    policy.min = limits.min;
    policy.batching_timeout = batching_timeout_;
    dispatcher_->set_policy(policy);
  }

  InstanceDispatcher& dispatcher() const {
    if (!dispatcher_)
      throw Error(ErrorCode::kConfig, "Batching has no dispatcher; write DI[Batching, InstanceDispatcher]");
    return *dispatcher_;
  }
  void forward_(Batch batch) override { dispatcher().forward(batch); }
  void post_(Batch batch, InlinePolicy how) override { dispatcher().post(batch, how); }
  Range range_() const override { return dispatcher_ ? dispatcher_->range() : Range{}; }

  std::shared_ptr<InstanceDispatcher> dispatcher_;
  Nanoseconds batching_timeout_ = 0;
  BatchingMode mode_ = BatchingMode::kAdaptive;
};

}  // namespace

[[gnu::cold]] void register_batching(Registry& registry) {
  BackendClass batching;
  batching.name = "Batching";
  batching.doc =
      "Forms batches for the dispatcher that is injected into it: adaptive, greedy, or none.\n"
      "A batch has at most `max` items. Without `Batching` a batch is the requests of one call.";
  batching.range = "as the dispatcher";
  batching.params = parse_param_specs(
      "batching: str = 'adaptive' {adaptive,greedy,off} 'adaptive: up to the learned target size; greedy: as many as are queued; off: one call is one batch';"
      "batching_timeout: milliseconds = 0 'maximum queue delay: how long a request is held so that others can join its batch'");
  batching.schedules = true;
  batching.create = [] { return std::make_shared<Batching>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(batching)));

  BackendClass dispatcher;
  dispatcher.name = "InstanceDispatcher";
  dispatcher.doc =
      "Owns the node's queue and passes batches to its instances.\n"
      "Hooks in brackets: the first runs on each request before it is queued, the second on each batch before its instance.\n"
      "The `result` of a hook becomes `data` for the next step.";
  dispatcher.range = "`min` to `max`";
  dispatcher.params = parse_param_specs(
      "max: int? {1..auto} 'maximum batch size; auto: learned; None: as its instances declare';"
      "min: int? {1..} 'minimum batch size; None: as its instances declare';"
      "max_queue_size: int = 1024 {1..} 'maximum number of queued requests of each class of service';"
      "on_full: str = 'block' {block,reject,drop_oldest} 'with a full queue a caller waits for capacity (block), its request fails with `QueueFull` (reject), or the oldest of its class in the queue does (drop_oldest)';"
      "memory_limit: bytesize? {1..} 'a request fails with `QueueFull` if the values of the queued requests would need more; None: no limit';"
      "aging: duration = '2s' 'how long a normal request waits before it goes first; 0: high and urgent requests always go first';"
      "max_wait: duration = '0s' 'while high and urgent requests come, batches with normal ones end within this time, as far as is learned; 0: any';"
      "reserve: int = 0 {0..} 'number of instances that run no normal requests';"
      "admission: str = 'all' {all,deadline} 'deadline: a request that cannot end in time, by the learned times, fails at once with `DeadlineExceeded`';"
      "request_cost: str? 'key of a request that says how large each of its items is, such as a number of tokens: requests of similar size share batches; None: as the backend declares; empty: all are equal';"
      "on_batch_error: str = 'isolate' {isolate,fail} 'requests of a failed batch run again, each alone (isolate), or all fail (fail)';"
      "shared_device: bool? 'the instances run on one device, so their batches start evenly spaced; None: if `device` is not a CPU';"
      "timeout: duration? 'time limit of each request, from its submission'");
  dispatcher.brackets = {false, {Phase{1, 2}}};
  dispatcher.schedules = true;
  dispatcher.owns_threads = true;
  dispatcher.create = [] { return std::make_shared<InstanceDispatcher>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(dispatcher)));
}

}  // namespace hami
