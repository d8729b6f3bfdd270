// InstanceDispatcher: from the arrival of requests to an instance that is free for the next.
#include "schedule/instance_dispatcher.hpp"

#include <algorithm>

#include "base/waiting.hpp"

namespace hami {
namespace {


Error closed() { return Error(ErrorCode::kPipeClosed, "the pipe is closed"); }

// A hook's `result` is the `data` of what follows; a hook that leaves none has changed the request in place.
void run_hook(Backend& hook, Batch batch) {
  hook.forward(batch);
  for (Request* request : batch)
    if (request->alive() && request->dict.contains(kResult)) promote_result(*request, hook.label());
}

}  // namespace

// The dispatchers whose instances the current thread is running, innermost first.
class InstanceDispatcher::Running {
 public:
  explicit Running(const InstanceDispatcher& dispatcher) noexcept : dispatcher_(dispatcher), outer_(innermost_) {
    innermost_ = this;
  }
  ~Running() { innermost_ = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  static bool any_on_this_thread() noexcept { return innermost_ != nullptr; }
  static bool on_this_thread(const InstanceDispatcher& dispatcher) noexcept {
    for (const Running* running = innermost_; running; running = running->outer_)
      if (&running->dispatcher_ == &dispatcher) return true;
    return false;
  }

 private:
  const InstanceDispatcher& dispatcher_;
  const Running* outer_;
  static thread_local const Running* innermost_;
};
thread_local const InstanceDispatcher::Running* InstanceDispatcher::Running::innermost_ = nullptr;

bool InstanceDispatcher::runs_on_this_thread() noexcept { return Running::any_on_this_thread(); }

void InstanceDispatcher::init_(Init& init) {
  node_ = init.node();
  context_ = init.shared_context();
  stats_ = &context_->stats(node_);
  const Params& params = init.params();
  queue_max_ = static_cast<std::size_t>(std::max<std::int64_t>(1, params.get<std::int64_t>("queue_max")));
  reject_when_full_ = params.get<std::string>("on_full") == "reject";
  isolate_ = params.get<std::string>("on_batch_error") == "isolate";
  if (const auto timeout = params.get<std::optional<double>>("timeout"))
    context_->lower_timeout(from_milliseconds(*timeout));

  bool retry_safe = true;
  quick_ = true;
  for (std::size_t i = 0;; ++i) {
    Backend* backend = context_->find(node_ + "." + std::to_string(i));
    if (!backend) break;
    auto instance = std::make_unique<Instance>();
    instance->worker = backend->own_worker();
    instance->own = instance->worker != nullptr;
    instance->backend = &backend->on_own_thread();
    const Range range = backend->range();
    if (range.declared() && (!declares_max_ || range.max > limits_.max)) limits_ = range;
    declares_max_ = declares_max_ || range.declared();
    quick_ = quick_ && !instance->own && backend->traits().quick;
    retry_safe = retry_safe && backend->traits().retry_safe;
    idle_.insert(idle_.begin(), instance.get());  // from now on, so that a later error here finds all of them idle
    instances_.push_back(std::move(instance));
  }
  if (instances_.empty())
    throw Error(ErrorCode::kConfig, "InstanceDispatcher found no instance of node \"" + node_ +
                                        "\"; put InstancesRegister[…] before it");
  isolate_ = isolate_ && retry_safe;

  if (const auto max = params.get<std::optional<std::int64_t>>("max")) {
    if (*max < 1) throw Error(ErrorCode::kConfig, "max is " + std::to_string(*max) + "; it must be at least 1");
    if (declares_max_ && static_cast<std::size_t>(*max) > limits_.max)
      throw Error(ErrorCode::kConfig, "max is " + std::to_string(*max) + "; the backend of node \"" + node_ +
                                          "\" takes at most " + std::to_string(limits_.max));
    limits_.max = static_cast<std::size_t>(*max);
    declares_max_ = true;
  }
  if (const auto min = params.get<std::optional<std::int64_t>>("min"))
    limits_.min = static_cast<std::size_t>(std::max<std::int64_t>(1, *min));
  if (limits_.min > limits_.max)
    throw Error(ErrorCode::kConfig, "min is " + std::to_string(limits_.min) + ", above max, which is " +
                                        std::to_string(limits_.max));
  policy_.max = limits_.max;
  policy_.min = limits_.min;

  if (init.has_brackets()) {
    before_gathering_ = init.make(init.items()[0]);
    if (init.items().size() > 1) before_instance_ = init.make(init.items()[1]);
    quick_ = false;
  }
  if (!quick_) context_->not_quick();
  context_->add_stoppable(weak_from_this());
  context_->set_free_instance_probe(node_, [this] {
    std::lock_guard lock(mutex_);
    return !idle_.empty();
  });
  context_->set_queue_probe(node_, [this]() -> std::optional<Value> {
    std::lock_guard lock(mutex_);
    if (queue_.empty()) return std::nullopt;
    const Value* data = queue_.front().request->dict.find(kData);
    return data ? *data : Value();
  });
}

InstanceDispatcher::~InstanceDispatcher() {
  stop();
  join(kNever);
}

void InstanceDispatcher::stop() noexcept {
  std::deque<Task> waiting;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting.swap(queue_);
    room_.notify_all();
    if (gathering_) gathering_->company.notify_all();
  }
  fail_all(waiting, closed());
}

bool InstanceDispatcher::join(Nanoseconds until) noexcept {
  {
    BlockingScope blocking;
    std::unique_lock lock(mutex_);
    const auto all_back = [&] { return idle_.size() == instances_.size(); };
    if (until == kNever)
      came_back_.wait(lock, all_back);
    else if (!came_back_.wait_until(lock, to_time_point(until), all_back)) {
      for (const auto& instance : instances_)
        if (std::find(idle_.begin(), idle_.end(), instance.get()) == idle_.end())
          context_->report_abandoned(instance->backend->label() + " of node \"" + node_ + "\"");
      return false;
    }
  }
  bool joined = true;
  for (const auto& instance : instances_)
    if (instance->helper && !instance->helper->stopped()) joined = instance->helper->stop(until) && joined;
  return joined;
}

bool InstanceDispatcher::owns_this_thread() noexcept {
  std::lock_guard lock(mutex_);
  return std::any_of(instances_.begin(), instances_.end(), [](const std::unique_ptr<Instance>& instance) {
    return instance->worker && instance->worker->is_current();
  });
}

// Everything that can be refused is refused before anything is taken.
bool InstanceDispatcher::admit(Request& request) noexcept {
  try {
    request.items = declared_items(request.dict);
    if (request.items > limits_.max)
      throw Error(ErrorCode::kRequest, "request_size is " + std::to_string(request.items) + "; node \"" + node_ +
                                           "\" takes at most " + std::to_string(limits_.max));
    if (before_gathering_) {
      Request* one = &request;
      run_hook(*before_gathering_, Batch(&one, 1));
    }
  } catch (...) {
    request.fail(current_error());
  }
  return request.alive();
}

void InstanceDispatcher::post_(Batch batch, Inline how) {
  std::vector<Request*> admitted;
  admitted.reserve(batch.size());
  for (Request* request : batch) {
    if (admit(*request)) {
      admitted.push_back(request);
    } else {
      ++stats_->requests;
      ++stats_->failed;
      *request->error = request->error->with_note("node \"" + node_ + "\"");
      finish(Batch(&request, 1));
    }
  }
  if (admitted.empty()) return;
  const Batch ready(admitted);
  if (Instance* instance = claim_inline(ready.items(), how)) {
    ++stats_->inline_runs;
    run(*instance, ready);
    release(*instance);
    finish(ready);
    return;
  }
  enqueue(admitted, how);
}

// An idle instance for the caller's own thread: only if nothing waits and the instance's class allows it.
InstanceDispatcher::Instance* InstanceDispatcher::claim_inline(std::size_t items, Inline how) {
  if (how != Inline::kAny && !quick_) return nullptr;
  if (items < policy_.min || items > policy_.max) return nullptr;
  std::lock_guard lock(mutex_);
  if (stopping_ || !queue_.empty() || gathering_ || idle_.empty() || idle_.back()->own) return nullptr;
  return pop_idle();
}

InstanceDispatcher::Instance* InstanceDispatcher::pop_idle() noexcept {
  Instance* instance = idle_.back();
  idle_.pop_back();
  return instance;
}

// Sets an instance to work on the queue; without the lock. If the system has no thread for it and no other instance will
// come by, what waits fails.
void InstanceDispatcher::wake(Instance& instance) noexcept {
  std::deque<Task> stranded;
  std::optional<Error> reason;
  try {
    if (!instance.worker) {
      auto helper = std::make_unique<Worker>(node_);
      std::lock_guard lock(mutex_);
      instance.helper = std::move(helper);
      instance.worker = instance.helper.get();
    }
    instance.worker->post([this, &instance] { serve(instance); });
    return;
  } catch (...) {
    reason = Error(ErrorCode::kInternal, "node \"" + node_ + "\" got no thread to run on: " + current_error().message());
  }
  {
    std::lock_guard lock(mutex_);
    idle_.push_back(&instance);
    if (idle_.size() == instances_.size()) stranded.swap(queue_);
    room_.notify_all();
    if (stopping_) came_back_.notify_all();
  }
  fail_all(stranded, *reason);
}

void InstanceDispatcher::fail_all(std::deque<Task>& tasks, const Error& error) noexcept {
  for (Task& task : tasks) {
    task.request->fail(error);
    Request* request = task.request.get();
    finish(Batch(&request, 1));
  }
}

void InstanceDispatcher::release(Instance& instance) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (queue_.empty()) {
      idle_.push_back(&instance);
      if (stopping_) came_back_.notify_all();
      return;
    }
  }
  wake(instance);
}

void InstanceDispatcher::enqueue(const std::vector<Request*>& requests, Inline how) {
  const bool from_inside = Running::on_this_thread(*this);
  std::vector<Request*> refused;
  std::vector<Instance*> woken;
  std::vector<Ref<Request>> dropped;
  {
    std::unique_lock lock(mutex_);
    const std::uint64_t call = ++calls_;
    const Nanoseconds arrived = now();
    std::size_t batches = 0;
    std::size_t items = 0;
    std::optional<Error> interrupted;  // once the user wants the thread back, nothing of this call waits any more
    for (Request* request : requests) {
      try {
        if (interrupted) throw Error(*interrupted);
        if (from_inside && idle_.empty())
          throw Error(ErrorCode::kReentrantCall,
                      "node \"" + node_ + "\" was called by its own backend while all its instances are busy");
        if (how != Inline::kFromLoop || reject_when_full_ || stopping_)
          make_room(lock, request->deadline, dropped, interrupted);
        queue_.push_back({Ref<Request>(request), arrived, call});
      } catch (...) {
        request->fail(current_error());
        refused.push_back(request);
        continue;
      }
      if (batches == 0 || items + request->items > policy_.max) {
        ++batches;
        items = 0;
      }
      items += request->items;
    }
    if (gathering_) gathering_->company.notify_all();
    while (!gathering_ && !queue_.empty() && !idle_.empty() && woken.size() < batches) woken.push_back(pop_idle());
  }
  for (Instance* instance : woken) wake(*instance);
  give_back(dropped);
  stats_->requests += refused.size();
  stats_->failed += refused.size();
  finish(Batch(refused));
}

// Returns when one more request may be queued; throws why it may not. Lets the lock go while it waits.
void InstanceDispatcher::make_room(std::unique_lock<std::mutex>& lock, Nanoseconds until,
                                   std::vector<Ref<Request>>& dropped, std::optional<Error>& interrupted) {
  const auto full = [&] { return !stopping_ && queue_.size() >= queue_max_; };
  if (full()) drop_dead(dropped);
  if (full() && reject_when_full_)
    throw Error(ErrorCode::kQueueFull, "node \"" + node_ + "\" has " + std::to_string(queue_.size()) +
                                           " requests waiting (queue_max = " + std::to_string(queue_max_) + ")");
  while (full()) {
    const Nanoseconds moment = now();
    if (moment >= until)
      throw Error(ErrorCode::kDeadlineExceeded,
                  "the request's time ran out before node \"" + node_ + "\" had room for it");
    // What is in the queue must be on its way before anyone waits for room.
    std::vector<Instance*> woken;
    if (gathering_)
      gathering_->company.notify_all();
    else
      while (!idle_.empty()) woken.push_back(pop_idle());
    lock.unlock();  // the global lock of a language is never taken while this one is held
    for (Instance* instance : woken) wake(*instance);
    give_back(dropped);
    {
      BlockingScope blocking;
      std::unique_lock inner(mutex_);
      room_.wait_until(inner, to_time_point(std::min(until, moment + kInterruptPoll)), [&] { return !full(); });
    }
    try {
      check_interrupt();
    } catch (...) {
      interrupted = current_error();
    }
    lock.lock();
    if (interrupted) throw Error(*interrupted);
  }
  if (stopping_) throw closed();
}

void InstanceDispatcher::serve(Instance& instance) {
  std::vector<Ref<Request>> taken;
  std::vector<Ref<Request>> dropped;
  std::vector<Request*> pointers;
  for (;;) {
    Instance* next = nullptr;
    {
      std::unique_lock lock(mutex_);
      const bool more = collect(instance, lock, taken, dropped);
      if (!more && dropped.empty()) {
        idle_.push_back(&instance);
        if (stopping_) came_back_.notify_all();
        return;  // and touch nothing: the dispatcher may be gone
      }
      if (!queue_.empty() && !idle_.empty() && !gathering_) next = pop_idle();
      room_.notify_all();
    }
    if (next) wake(*next);
    give_back(dropped);
    if (!taken.empty()) {
      pointers.clear();
      for (const Ref<Request>& request : taken) pointers.push_back(request.get());
      run(instance, Batch(pointers));
      finish(Batch(pointers));
      taken.clear();
    }
  }
}

// Requests that failed while they waited go to those who asked; without the lock.
void InstanceDispatcher::give_back(std::vector<Ref<Request>>& dropped) noexcept {
  if (dropped.empty()) return;
  std::vector<Request*> pointers;
  for (const Ref<Request>& request : dropped) pointers.push_back(request.get());
  stats_->requests += pointers.size();
  stats_->failed += pointers.size();
  finish(Batch(pointers));
  dropped.clear();
}

// True if nobody waits for this request any more: it has then failed and left the queue.
bool InstanceDispatcher::drop_if_dead(std::size_t index, Nanoseconds moment, std::vector<Ref<Request>>& dropped) {
  Request& request = *queue_[index].request;
  const bool late = request.deadline <= moment;
  if (!late && !request.abandoned()) return false;
  request.fail(late ? Error(ErrorCode::kDeadlineExceeded,
                            "the request's time ran out while it waited for node \"" + node_ + "\"")
                    : Error(ErrorCode::kCancelled, "its caller has left"));
  dropped.push_back(std::move(queue_[index].request));
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

void InstanceDispatcher::drop_dead(std::vector<Ref<Request>>& dropped) {
  const Nanoseconds moment = now();
  for (std::size_t i = 0; i < queue_.size();)
    if (!drop_if_dead(i, moment, dropped)) ++i;
}

// How many requests from the front make the next batch, and their items. What nobody waits for takes no place in it.
std::size_t InstanceDispatcher::fill(Nanoseconds moment, std::size_t& items, std::vector<Ref<Request>>& dropped) {
  std::size_t count = 0;
  items = 0;
  while (count < queue_.size()) {
    if (drop_if_dead(count, moment, dropped)) continue;
    const Task& task = queue_[count];
    if (count > 0 && items + task.request->items > policy_.max) break;
    if (count > 0 && !policy_.gather && task.call != queue_.front().call) break;
    items += task.request->items;
    ++count;
  }
  return count;
}

bool InstanceDispatcher::collect(Instance& instance, std::unique_lock<std::mutex>& lock, std::vector<Ref<Request>>& taken,
                                 std::vector<Ref<Request>>& dropped) {
  for (;;) {
    const Nanoseconds moment = now();
    std::size_t items = 0;
    const std::size_t count = fill(moment, items, dropped);
    if (count == 0) return false;
    // Who would make the batch full may be waiting for room in the queue.
    const bool full = items >= policy_.max || count < queue_.size() || queue_.size() >= queue_max_;
    const bool alone = count == 1 && items >= policy_.min;
    const Nanoseconds patience = queue_.front().arrived + policy_.company;
    if (!full && !alone && !stopping_ && moment < patience && (policy_.gather || items < policy_.min)) {
      if (!gathering_) {
        gathering_ = &instance;
        instance.company.wait_until(lock, to_time_point(patience));
        gathering_ = nullptr;
        continue;
      }
      if (items < policy_.min) return false;  // another instance waits for company already, and takes these as well
    }
    for (std::size_t i = 0; i < count; ++i) {
      taken.push_back(std::move(queue_.front().request));
      queue_.pop_front();
    }
    if (items >= policy_.min) return true;
    for (Ref<Request>& request : taken) {
      request->fail(Error(ErrorCode::kRequest, "node \"" + node_ + "\" takes at least " + std::to_string(policy_.min) +
                                                   " items; only " + std::to_string(items) + " came in time"));
      dropped.push_back(std::move(request));
    }
    taken.clear();
    return true;
  }
}

// Each request has an outcome of its own afterwards. Never throws: what the backend throws becomes the outcome.
void InstanceDispatcher::run(Instance& instance, Batch batch) noexcept {
  const bool may_isolate = batch.size() > 1 && isolate_;
  std::vector<Dict> as_it_came;
  if (may_isolate)
    for (Request* request : batch) as_it_came.push_back(request->dict);
  const Nanoseconds start = now();
  std::optional<Error> failure;
  {
    const Running running(*this);
    try {
      if (before_instance_) run_hook(*before_instance_, batch);
      instance.backend->forward(batch);
    } catch (...) {
      failure = current_error();
    }
    if (failure && may_isolate && !failure->is_final()) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (!batch[i].alive()) continue;
        batch[i].dict = std::move(as_it_came[i]);
        ++stats_->retried;
        run_alone(instance, batch[i]);
      }
    } else if (failure) {
      for (Request* request : batch) request->fail(*failure);
    }
  }
  stats_->busy_ns += static_cast<std::uint64_t>(now() - start);
  ++stats_->batches;
  stats_->items += batch.items();
  stats_->requests += batch.size();
  for (Request* request : batch) {
    if (request->alive()) continue;
    *request->error = request->error->with_note("node \"" + node_ + "\"");
    ++stats_->failed;
  }
}

void InstanceDispatcher::run_alone(Instance& instance, Request& request) noexcept {
  Request* one = &request;
  try {
    if (before_instance_) run_hook(*before_instance_, Batch(&one, 1));
    instance.backend->forward(Batch(&one, 1));
  } catch (...) {
    request.fail(current_error());
  }
}

}  // namespace hami
