// InstanceDispatcher: the instances of a node and their threads.
#include "schedule/instance_dispatcher.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "lang/api.hpp"
#include "request/api.hpp"

namespace hami {

void InstanceDispatcher::init_(Init& init) {
  node_ = init.node();
  trace_name_ = trace::intern(node_);
  context_ = init.shared_context();
  stats_ = &context_->resources.stats(node_);
  NodeTimes& times = context_->resources.times(node_);
  runner_.emplace(node_, *stats_, times);
  if (context_->graph.size() > 1) learned_ = &times.learned;
  const Params& params = init.params();
  memory_limit_ = static_cast<std::size_t>(params.get<std::optional<std::int64_t>>("memory_limit").value_or(0));
  max_queue_size_ = static_cast<std::size_t>(params.get<std::int64_t>("max_queue_size"));
  const std::string on_full = params.get<std::string>("on_full");
  on_full_ = on_full == "reject" ? OnFull::kReject : on_full == "drop_oldest" ? OnFull::kDropOldest : OnFull::kBlock;
  runner_->set_isolate(params.get<std::string>("on_batch_error") == "isolate");
  if (const auto timeout = params.get<std::optional<double>>("timeout"))
    context_->resources.lower_timeout(from_milliseconds(*timeout));
  NodeScheduler scheduler(node_);
  add_instances(scheduler);
  set_limits(params);
  scheduler.config().batching = {BatchingMode::kPerCall, limits_.max, limits_.min, 0};
  scheduler.config().capacity = max_queue_size_;
  scheduler.config().shared_device = params.get<std::optional<bool>>("shared_device").value_or(on_device_);
  set_classes(params, scheduler);
  set_cost(params, scheduler);
  runner_->set_hooks(init);
  {
    MutexLock lock(mutex_);
    scheduler_.emplace(std::move(scheduler));
  }
  if (!init.has_brackets())
    for (const auto& instance : instances_) instance->acquires_gil = instance->backend->acquires_gil();
  non_blocking_ = non_blocking_ && !init.has_brackets();
  if (!non_blocking_) context_->resources.mark_blocking();
  context_->shutdown.add_service(weak_from_this());
  set_probes();
}

void InstanceDispatcher::add_instances(NodeScheduler& scheduler) {
  for (std::size_t i = 0;; ++i) {
    Backend* backend = context_->instances.find(node_ + "." + std::to_string(i));
    if (!backend) break;
    auto instance = std::make_unique<Instance>();
    instance->worker = backend->own_worker();
    instance->own = instance->worker != nullptr;
    instance->backend = &backend->on_own_thread();
    const Range range = backend->range();
    if (range.declared())
      limits_ = limits_.declared() ? Range{std::min(limits_.min, range.min), std::max(limits_.max, range.max)} : range;
    non_blocking_ = non_blocking_ && !instance->own && backend->traits().non_blocking;
    on_device_ = on_device_ || backend->traits().on_device;
    if (!backend->traits().idempotent) runner_->set_isolate(false);
    scheduler.add_instance(range, !instance->own);
    instances_.push_back(std::move(instance));
  }
  if (instances_.empty())
    throw Error(ErrorCode::kConfig,
                "InstanceDispatcher found no instance of node \"" + node_ + "\"; put InstancesRegister[…] before it");
}

void InstanceDispatcher::set_limits(const Params& params) {
  const Remarks& remarks = context_->resources.remarks(node_);  // of the backends, which may say why their max is 1
  if (limits_.declared() && limits_.max == 1) why_one_ = &remarks;
  if (const Value* const max = params.find("max"); max && !max->is_none()) {
    const bool is_auto = max->kind() == Kind::kStr;
    const std::size_t most = is_auto ? Range::kAuto : static_cast<std::size_t>(max->as_int());
    if (limits_.declared() && most > limits_.max)
      throw Error(ErrorCode::kConfig, "max is " + show_value(*max) + "; the backend of node \"" + node_ +
                                          "\" takes at most " + show_max(limits_.max) +
                                          (is_auto ? ": remove max, or give a number" : "") + remarks.lines());
    limits_.max = most;
  }
  if (const auto min = params.get<std::optional<std::int64_t>>("min")) limits_.min = static_cast<std::size_t>(*min);
  if (limits_.min > limits_.max)
    throw Error(ErrorCode::kConfig,
                "min is " + std::to_string(limits_.min) + ", above max, which is " + show_max(limits_.max));
}

void InstanceDispatcher::set_classes(const Params& params, NodeScheduler& scheduler) {
  if (const double aging = params.get<double>("aging"); aging > 0)
    scheduler.queue().set_aging(from_milliseconds(aging));
  const auto reserve = static_cast<std::size_t>(params.get<std::int64_t>("reserve"));
  if (reserve >= instances_.size())
    throw Error(ErrorCode::kConfig, "reserve is " + std::to_string(reserve) + ", and node \"" + node_ + "\" has " +
                                        std::to_string(instances_.size()) +
                                        (instances_.size() == 1 ? " instance" : " instances") +
                                        "; at least one must run normal requests: lower reserve or raise instance_num");
  max_wait_ = from_milliseconds(params.get<double>("max_wait"));
  NodeConfig& config = scheduler.config();
  config.reserve = reserve;
  config.max_wait = max_wait_;
  config.by_deadline = params.get<std::string>("admission") == "deadline";
  config.auto_instances = context_->instances.is_auto(node_) && instances_.size() > 1;
}

// The key of the configuration, else what the backends declare, which has no use where batches have one item.
void InstanceDispatcher::set_cost(const Params& params, NodeScheduler& scheduler) {
  CostFunction cost;
  if (auto key = params.get<std::optional<std::string>>("request_cost")) {
    if (!key->empty()) cost = cost_by_key(*std::move(key));
  } else if (limits_.declared() && limits_.max > 1) {
    cost = instances_.front()->backend->request_cost();
  }
  if (!cost) return;
  runner_->set_cost(std::move(cost));
  scheduler.learn_costs();
}

void InstanceDispatcher::set_probes() {
  context_->resources.set_free_instance_probe(node_, [this] {
    MutexLock lock(mutex_);
    return scheduler_->free_instances() > 0;
  });
  context_->resources.set_queue_probe(node_, [this]() -> std::optional<Value> {
    MutexLock lock(mutex_);
    const Request* first = scheduler_->queue().first();
    if (!first) return std::nullopt;
    const Value* data = first->dict.find(kData);
    return data ? *data : Value();
  });
}

InstanceDispatcher::~InstanceDispatcher() {
  const UninterruptibleScope must_finish;
  stop();
  join(kNever);
}

void InstanceDispatcher::stop() noexcept {
  RequestChain expired, waiting;
  {
    MutexLock lock(mutex_);
    if (!scheduler_) return;  // its init failed
    scheduler_->stop();
    scheduler_->queue().remove_expired(now(), expired);
    waiting = scheduler_->queue().take_all();
    notify_all_capacity();
    notify_batch_ready();
  }
  runner_->complete_rejected(expired);
  fail_all(waiting, Error::pipe_closed());
}

bool InstanceDispatcher::join(Nanoseconds until) {
  bool joined = wait_for(mutex_, all_idle_, until, [&] {
    mutex_.assert_held();
    return !scheduler_ || scheduler_->all_idle();  // without a scheduler, its init failed
  });
  if (!joined) return false;
  for (const auto& instance : instances_)
    if (instance->helper) joined = instance->helper->stop(until) && joined;
  return joined;
}

std::vector<std::string> InstanceDispatcher::running() {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  const auto& idle = scheduler_->idle();
  for (Index i = 0; i < instances_.size(); ++i)
    if (std::find(idle.begin(), idle.end(), i) == idle.end())
      names.push_back(instances_[i]->backend->label() + " of node \"" + node_ + "\"");
  return names;
}

bool InstanceDispatcher::is_quiet() {
  MutexLock lock(mutex_);
  return scheduler_->is_quiet();
}

bool InstanceDispatcher::start_waiting(bool below_min) {
  MutexLock lock(mutex_);
  const bool starts = scheduler_->start_waiting(below_min);
  notify_batch_ready();
  return starts;
}

Nanoseconds InstanceDispatcher::run(Index instance, Batch batch, Origin origin) noexcept {
  const ExecutionFrame running(*this, instance, batch);
  const std::size_t parts_before = batch.parts_emitted();
  const Nanoseconds took = runner_->run(*instances_[instance]->backend, batch, origin.reason);
  ++origin.counter;
  if (batch.parts_emitted() != parts_before) return 0;
  // An early error would look like a cheap batch.
  const auto failed = [](const Request* request) { return !request->alive(); };
  return runner_->has_costs() && std::any_of(batch.begin(), batch.end(), failed) ? 0 : took;
}

InstanceDispatcher::Origin InstanceDispatcher::started(NodeScheduler::StartReason reason) noexcept {
  switch (reason) {
    case NodeScheduler::StartReason::kFull: return {stats_->closed_full, BatchRunner::StartReason::kFull};
    case NodeScheduler::StartReason::kTargetSize:
      return {stats_->closed_target_size, BatchRunner::StartReason::kTargetSize};
    case NodeScheduler::StartReason::kTimeout: return {stats_->closed_timeout, BatchRunner::StartReason::kTimeout};
    case NodeScheduler::StartReason::kQueueEmpty: break;
  }
  return {stats_->closed_queue_empty, BatchRunner::StartReason::kQueueEmpty};
}

// Makes an instance work on the queue; called without the lock. If the system provides no thread and no other instance is
// running, the queued requests fail.
void InstanceDispatcher::wake(Index index) noexcept {
  RequestChain stranded;
  try {
    return post_to_worker(index);
  } catch (...) {
    const Error error = current_error().with_note(runner_->note());
    {
      MutexLock lock(mutex_);
      scheduler_->mark_idle(index);
      if (scheduler_->all_idle()) stranded = scheduler_->queue().take_all();
      notify_all_capacity();
      if (scheduler_->stopping()) all_idle_.notify_all();
    }
    fail_all(stranded, error);
  }
}

void InstanceDispatcher::post_to_worker(Index index) {
  Instance& instance = *instances_[index];
  if (!instance.worker) {
    const BlockingScope blocking;  // a language may let its other threads wait while a thread starts
    auto helper = std::make_unique<Worker>(node_, context_.get());
    MutexLock lock(mutex_);
    instance.helper = std::move(helper);
    instance.worker = instance.helper.get();
  }
  instance.worker->post([this, index] { run_instance_loop(index); });
}

void InstanceDispatcher::wake(Dispatched& dispatched) noexcept {
  while (const std::optional<Index> index = dispatched.first) {
    dispatched.first = std::exchange(instances_[*index]->next_dispatched, std::nullopt);
    wake(*index);
  }
  dispatched.last = std::nullopt;
}

void InstanceDispatcher::fail_all(RequestChain& requests, const Error& error) noexcept {
  for (Request* request = requests.first(); request; request = RequestChain::after(*request)) request->fail(error);
  runner_->complete_rejected(requests);
}

// After an inline batch: an instance's own thread takes the queue.
void InstanceDispatcher::finish_inline(Index instance, std::size_t items, Nanoseconds took) noexcept {
  std::optional<Index> next;
  {
    MutexLock lock(mutex_);
    record_batch(instance, items, took, scheduler_->needs_moment() ? now() : 0);
    scheduler_->mark_idle(instance);
    next = scheduler_->dispatch_idle();
    if (!next && scheduler_->stopping()) all_idle_.notify_all();
  }
  if (next) wake(*next);
}

void InstanceDispatcher::notify_batch_ready() {
  if (scheduler_->batch_ready()) instances_[*scheduler_->forming()]->batch_ready.notify_all();
}

// Notifies one producer per freed slot, to avoid a thundering herd. A producer that does not use its slot passes the
// notification on (wait_for_capacity).
void InstanceDispatcher::notify_capacity(const RequestChain& gone) noexcept {
  if (memory_limit_ > 0) stats_->queued_bytes = scheduler_->queue().bytes();
  for (const Request* request = gone.first(); request; request = RequestChain::after(*request))
    capacity_available_[lane_of(request->priority)].notify_one();
}

void InstanceDispatcher::notify_all_capacity() noexcept {
  for (CondVar& lane : capacity_available_) lane.notify_all();
}

WaitLocation::Blocked InstanceDispatcher::blocked(const std::vector<Index>& unavailable, Nanoseconds moment) {
  MutexLock lock(mutex_);
  return scheduler_->blocked(unavailable, moment);
}

// The loop of an instance while there is work, on its worker.
void InstanceDispatcher::run_instance_loop(Index instance) noexcept {
  RequestChain taken;
  RequestChain removed;
  RequestList& batch = instances_[instance]->batch;
  LastBatch last;
  GilPreacquire gil;
  // Completion may run callers' code. If that waits for this node, this instance counts as unavailable.
  const auto complete = [&](Batch completed, const auto& outcomes) {
    ExecutionFrame here(*this, instance, completed);
    here.begin_completion();
    outcomes();
  };
  while (next_batch(instance, last, gil, taken, removed)) {
    if (!removed.empty()) gil.release();
    complete(Batch(nullptr, 0), [&] { runner_->complete_rejected(removed); });
    if (taken.empty()) continue;
    if (!batch.take(taken)) {
      gil.release();
      complete(Batch(nullptr, 0), [&] { fail_all(taken, Error::out_of_memory().with_note(runner_->note())); });
      continue;
    }
    last.items = batch.batch().items();
    gil.consume();
    last.took = run(instance, batch.batch(), started(last.reason));
    gil.release();
    if (last.least > 0 && !warned_.exchange(true)) warn_of_max_wait(last.least);
    if (last.more && instances_[instance]->acquires_gil && only_wakes(batch.batch())) gil.acquire();
    complete(batch.batch(), [&] { complete_requests(batch.batch()); });
    batch.clear();
  }
}

bool InstanceDispatcher::next_batch(Index instance, LastBatch& last, GilPreacquire& gil, RequestChain& taken,
                                    RequestChain& removed) noexcept {
  std::optional<Index> next;
  bool becomes_idle = false;
  trace::Slice forming;
  {
    MutexLock lock(mutex_);
    Nanoseconds moment = now();
    if (const std::size_t items = std::exchange(last.items, 0)) record_batch(instance, items, last.took, moment);
    for (;; moment = now()) {
      const NodeScheduler::Action step = scheduler_->next_action(instance, moment, taken, removed);
      becomes_idle = step.what == NodeScheduler::Action::kIdle;
      last.reason = step.reason;
      if (step.what == NodeScheduler::Action::kAgain) break;
      if (step.what != NodeScheduler::Action::kRun) gil.release();
      if (step.what != NodeScheduler::Action::kWait) break;
      if (trace::active() && !forming.recorded()) trace_forming(forming);
      instances_[instance]->batch_ready.wait_until(lock, step.until);
    }
    if (const CostModel* const costs = scheduler_->costs()) {  // counted before the callers get their results
      stats_->policy.cost.store(costs->cost(), std::memory_order_relaxed);
      stats_->policy.padded_cost.store(costs->padded(), std::memory_order_relaxed);
    }
    last.more = !scheduler_->queue().empty();
    last.least = scheduler_->exceeds_max_wait();
    next = scheduler_->dispatch_idle();
    notify_capacity(taken);
    notify_capacity(removed);
    if (becomes_idle) notify_batch_ready();  // without this instance the queue may count as full
    if (becomes_idle && scheduler_->stopping()) all_idle_.notify_all();
  }
  // An idle instance must not use the dispatcher any more, which may be destroyed, unless it dispatches another one.
  if (next) wake(*next);
  return !becomes_idle;
}

void InstanceDispatcher::trace_forming(trace::Slice& slice) const noexcept {
  static const trace::Name name = trace::intern("form batch");
  trace::Event event;
  event.category = trace::Category::kBatch;
  event.time = now();
  event.name = name;
  event.node = trace_name_;
  slice.begin(event);
}

std::string InstanceDispatcher::shown(Nanoseconds time) {
  const double milliseconds = static_cast<double>(time) / 1e6;
  return show_duration(milliseconds < 10 ? std::round(milliseconds * 100) / 100 : std::round(milliseconds));
}

void InstanceDispatcher::warn_of_max_wait(Nanoseconds least) noexcept {
  try {
    log(node_, "max_wait is " + shown(max_wait_) + ", and the smallest batch takes " + shown(least) +
                   ": high requests wait longer than max_wait; raise it, or set reserve = 1");
  } catch (const std::bad_alloc&) {
  }
}

void InstanceDispatcher::publish_policy() noexcept {
  PolicyStats& policy = stats_->policy;
  policy.capped_until.store(scheduler_->capped_until(), std::memory_order_relaxed);
  const std::optional<bool> waits = scheduler_->waits_for_returns();
  if (waits) {
    policy.return_waits.store(*waits ? PolicyStats::kOn : PolicyStats::kOff, std::memory_order_relaxed);
    if (const std::optional<double> gain = scheduler_->return_wait_gain()) {
      policy.return_wait_gain.store(*gain, std::memory_order_relaxed);
      policy.gain_known.store(true, std::memory_order_release);
    }
  }
  const auto trial = [&] {
    mutex_.assert_held();
    const std::optional<PolicyTrial::Alternative> tried = scheduler_->trial();
    if (!tried) return PolicyStats::kNone;
    return *tried == PolicyTrial::kHold            ? PolicyStats::kReturnWaits
           : *tried == PolicyTrial::kMoreInstances ? PolicyStats::kMoreInstances
                                                   : PolicyStats::kFewerInstances;
  };
  policy.trial.store(trial(), std::memory_order_relaxed);
}

void InstanceDispatcher::record_batch(Index instance, std::size_t items, Nanoseconds took,
                                      Nanoseconds moment) noexcept {
  scheduler_->record_batch(instance, items, took, moment);
  if (scheduler_->config().auto_instances) stats_->instances_in_use = scheduler_->instances_in_use();
  if (scheduler_->has_policy()) publish_policy();
  if (learned_) learned_->set(scheduler_->estimate(items, moment));
  const std::optional<ServiceTime> service_time = scheduler_->service_time();
  if (!service_time) return;
  stats_->batch_overhead_ns = static_cast<std::uint64_t>(service_time->overhead);
  stats_->per_item_ns = static_cast<std::uint64_t>(service_time->per_item);
  stats_->target_batch_size = scheduler_->target_batch_size();
}

}  // namespace hami
