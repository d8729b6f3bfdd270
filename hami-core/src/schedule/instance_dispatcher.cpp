// InstanceDispatcher: a node's instances, their threads, and what they run next.
#include "schedule/instance_dispatcher.hpp"

#include <algorithm>
#include <utility>

#include "sync/blocking.hpp"
#include "request/execution_frame.hpp"

namespace hami {

void InstanceDispatcher::init_(Init& init) {
  node_ = init.node();
  context_ = init.shared_context();
  stats_ = &context_->stats(node_);
  runner_.emplace(node_, *stats_);
  scheduler_.emplace(node_);
  const Params& params = init.params();
  queue_max_ = static_cast<std::size_t>(params.get<std::int64_t>("queue_max"));
  reject_when_full_ = params.get<std::string>("on_full") == "reject";
  runner_->set_isolate(params.get<std::string>("on_batch_error") == "isolate");
  if (const auto timeout = params.get<std::optional<double>>("timeout"))
    context_->lower_timeout(from_milliseconds(*timeout));
  add_instances();
  set_limits(params);
  scheduler_->set_room(queue_max_);
  scheduler_->set_policy({Gather::kCalls, limits_.max, limits_.min, 0});
  runner_->set_hooks(init);
  if (!init.has_brackets())
    for (const auto& instance : instances_) instance->begins_locked = instance->backend->begins_locked();
  quick_ = quick_ && !init.has_brackets();
  if (!quick_) context_->not_quick();
  context_->add_stoppable(weak_from_this());
  set_probes();
}

void InstanceDispatcher::add_instances() {
  for (std::size_t i = 0;; ++i) {
    Backend* backend = context_->find(node_ + "." + std::to_string(i));
    if (!backend) break;
    auto instance = std::make_unique<Instance>();
    instance->worker = backend->own_worker();
    instance->own = instance->worker != nullptr;
    instance->backend = &backend->on_own_thread();
    const Range range = backend->range();
    if (range.declared()) {
      limits_ = declares_max_ ? Range{std::min(limits_.min, range.min), std::max(limits_.max, range.max)} : range;
      declares_max_ = true;
    }
    quick_ = quick_ && !instance->own && backend->traits().quick;
    if (!backend->traits().retry_safe) runner_->set_isolate(false);
    scheduler_->add_instance(range, !instance->own);
    instances_.push_back(std::move(instance));
  }
  if (instances_.empty())
    throw Error(ErrorCode::kConfig, "InstanceDispatcher found no instance of node \"" + node_ +
                                        "\"; put InstancesRegister[…] before it");
}

void InstanceDispatcher::set_limits(const Params& params) {
  const auto limit = [&](const char* name) { return params.get<std::optional<std::int64_t>>(name); };
  if (const auto max = limit("max")) {
    if (declares_max_ && static_cast<std::size_t>(*max) > limits_.max)
      throw Error(ErrorCode::kConfig, "max is " + std::to_string(*max) + "; the backend of node \"" + node_ +
                                          "\" takes at most " + std::to_string(limits_.max));
    limits_.max = static_cast<std::size_t>(*max);
    declares_max_ = true;
  }
  if (const auto min = limit("min")) limits_.min = static_cast<std::size_t>(*min);
  if (limits_.min > limits_.max)
    throw Error(ErrorCode::kConfig, "min is " + std::to_string(limits_.min) + ", above max, which is " +
                                        std::to_string(limits_.max));
}

void InstanceDispatcher::set_probes() {
  context_->set_free_instance_probe(node_, [this] {
    std::lock_guard lock(mutex_);
    return !scheduler_->idle().empty();
  });
  context_->set_queue_probe(node_, [this]() -> std::optional<Value> {
    std::lock_guard lock(mutex_);
    const Request* first = scheduler_->first();
    if (!first) return std::nullopt;
    const Value* data = first->dict.find(kData);
    return data ? *data : Value();
  });
}

InstanceDispatcher::~InstanceDispatcher() {
  stop();
  join(kNever);
}

void InstanceDispatcher::stop() noexcept {
  Requests waiting;
  {
    std::lock_guard lock(mutex_);
    if (!scheduler_) return;  // its init failed
    scheduler_->stop();
    waiting = scheduler_->take_all();
    room_.notify_all();
    notify_company();
  }
  fail_all(waiting, Error(ErrorCode::kPipeClosed, "the pipe is closed"));
}

bool InstanceDispatcher::join(Nanoseconds until) noexcept {
  if (!scheduler_) return true;
  {
    BlockingScope blocking;
    std::unique_lock lock(mutex_);
    const auto all_back = [&] { return scheduler_->all_idle(); };
    if (until == kNever)
      came_back_.wait(lock, all_back);
    else if (!came_back_.wait_until(lock, to_time_point(until), all_back)) {
      const auto& idle = scheduler_->idle();
      for (Index i = 0; i < instances_.size(); ++i)
        if (std::find(idle.begin(), idle.end(), i) == idle.end())
          context_->report_abandoned(instances_[i]->backend->label() + " of node \"" + node_ + "\"");
      return false;
    }
  }
  bool joined = true;
  for (const auto& instance : instances_)
    if (instance->helper && !instance->helper->stopped()) joined = instance->helper->stop(until) && joined;
  return joined;
}

bool InstanceDispatcher::owns_this_thread() noexcept {
  if (Running::inside(*this)) return true;  // a thread that an instance waits for
  std::lock_guard lock(mutex_);
  return std::any_of(instances_.begin(), instances_.end(), [](const std::unique_ptr<Instance>& instance) {
    return instance->worker && instance->worker->is_current();
  });
}

Nanoseconds InstanceDispatcher::run(Index instance, Batch batch) noexcept {
  const Running running(*this, instance, batch);
  return runner_->run(*instances_[instance]->backend, batch);
}

// Sets an instance to work on the queue; without the lock. If the system has no thread for it and no other instance will
// come by, what waits fails.
void InstanceDispatcher::wake(Index index) noexcept {
  Instance& instance = *instances_[index];
  Requests stranded;
  std::optional<Error> reason;
  try {
    if (!instance.worker) {
      auto helper = std::make_unique<Worker>(node_);
      std::lock_guard lock(mutex_);
      instance.helper = std::move(helper);
      instance.worker = instance.helper.get();
    }
    instance.worker->post([this, index] { serve(index); });
    return;
  } catch (...) {
    reason = Error(ErrorCode::kInternal, "node \"" + node_ + "\" got no thread to run on: " + current_error().message());
  }
  {
    std::lock_guard lock(mutex_);
    scheduler_->rest(index);
    if (scheduler_->all_idle()) stranded = scheduler_->take_all();
    room_.notify_all();
    if (scheduler_->stopping()) came_back_.notify_all();
  }
  fail_all(stranded, *reason);
}

void InstanceDispatcher::wake(const std::vector<Index>& instances) noexcept {
  for (Index instance : instances) wake(instance);
}

void InstanceDispatcher::fail_all(Requests& requests, const Error& error) noexcept {
  for (const Ref<Request>& request : requests) {
    request->fail(error);
    Request* one = request.get();
    finish(Batch(&one, 1));
  }
}

// After a batch on a caller's thread: what waits now is for the instance's own.
void InstanceDispatcher::release(Index instance, std::size_t items, Nanoseconds took) noexcept {
  std::optional<Index> next;
  {
    std::lock_guard lock(mutex_);
    learn(instance, items, took);
    scheduler_->rest(instance);
    next = scheduler_->summon();
    if (!next && scheduler_->stopping()) came_back_.notify_all();
  }
  if (next) wake(*next);
}

void InstanceDispatcher::notify_company() {
  if (scheduler_->has_company()) instances_[*scheduler_->gathering()]->company.notify_all();
}

void InstanceDispatcher::add_stuck(const std::vector<Index>& lost, Nanoseconds moment, std::vector<const Ask*>& stuck) {
  std::lock_guard lock(mutex_);
  scheduler_->add_stuck(lost, moment, stuck);
}

// The loop of an instance while there is work: on the worker's thread.
void InstanceDispatcher::serve(Index instance) {
  Requests taken;
  Requests dropped;
  std::vector<Request*> batch;
  Ran last;
  LockAhead lock_ahead;
  // Callers' code may run now: if it waits for this node, the instance is not there for it.
  const auto tell = [&](const auto& outcomes) {
    const Running here(*this, instance, Batch(nullptr, 0));
    outcomes();
  };
  while (next_batch(instance, last, lock_ahead, taken, dropped)) {
    if (!dropped.empty()) lock_ahead.let_go();
    tell([&] { give_back(dropped); });
    if (taken.empty()) continue;
    batch.clear();
    for (const Ref<Request>& request : taken) batch.push_back(request.get());
    last.items = last.released = Batch(batch).items();
    lock_ahead.hand_over();
    last.took = run(instance, Batch(batch));
    lock_ahead.let_go();
    if (last.more && instances_[instance]->begins_locked && only_wakes(Batch(batch))) lock_ahead.take();
    tell([&] { finish(Batch(batch)); });
    taken.clear();
  }
}

bool InstanceDispatcher::next_batch(Index instance, Ran& last, LockAhead& lock_ahead, Requests& taken, Requests& dropped) {
  std::optional<Index> next;
  bool rests = false;
  {
    std::unique_lock lock(mutex_);
    if (const std::size_t items = std::exchange(last.items, 0)) learn(instance, items, last.took);
    for (;;) {
      const NodeScheduler::Step step = scheduler_->collect(instance, now(), last.released, taken, dropped);
      rests = step.what == NodeScheduler::Step::kRest;
      if (step.what == NodeScheduler::Step::kAgain) break;
      last.released = 0;
      if (step.what != NodeScheduler::Step::kRun) lock_ahead.let_go();
      if (step.what != NodeScheduler::Step::kWait) break;
      instances_[instance]->company.wait_until(lock, to_time_point(step.until));
    }
    last.more = scheduler_->waiting() > 0;
    next = scheduler_->summon();
    // One caller for each place: all of them would wake to find it taken. Who does not take his passes it on (make_room).
    for (std::size_t places = taken.size() + dropped.size(); places > 0; --places) room_.notify_one();
    if (rests) notify_company();  // with what this one was to take the queue may be full
    if (rests && scheduler_->stopping()) came_back_.notify_all();
  }
  // Who rests touches the dispatcher no more, unless he woke another, for whom it waits.
  if (next) wake(*next);
  return !rests;
}

void InstanceDispatcher::learn(Index instance, std::size_t items, Nanoseconds took) noexcept {
  scheduler_->ran(instance, items, took);
  const NodeScheduler::Closed& closed = scheduler_->closed();
  stats_->closed_full = closed.full;
  stats_->closed_chosen = closed.chosen;
  stats_->closed_patience = closed.patience;
  stats_->closed_drained = closed.drained;
  const std::optional<Cost> cost = scheduler_->cost();
  if (!cost) return;
  stats_->fixed_ns = static_cast<std::uint64_t>(cost->fixed);
  stats_->item_ns = static_cast<std::uint64_t>(cost->item);
  stats_->aim = scheduler_->aim();
}

// Requests that failed while they waited go to those who asked; without the lock.
void InstanceDispatcher::give_back(Requests& dropped) noexcept {
  if (dropped.empty()) return;
  std::vector<Request*> pointers;
  for (const Ref<Request>& request : dropped) pointers.push_back(request.get());
  runner_->finish_unrun(Batch(pointers));
  dropped.clear();
}

}  // namespace hami
