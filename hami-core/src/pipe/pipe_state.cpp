// PipeState: building, calling, closing.
#include "pipe/pipe_state.hpp"

#include "container/api.hpp"
#include "pipe/request_keys.hpp"
#include "request/api.hpp"
#include "schedule/api.hpp"

namespace hami {
namespace {

// The grace period of a close, one second: after the timeout, cancelled work gets this long to return.
constexpr Nanoseconds kGracePeriod = 1'000'000'000;

// Leaked intentionally: threads may use them until the process ends.
const Error& closed_while_open = *new Error(ErrorCode::kPipeClosed, "the pipe was closed");
Mutex& leaked_mutex = *new Mutex;

// What messages call a pipe: its file, the expression of its only node, or the names of its nodes.
std::string name_of(const PipeConfig& config) {
  if (!config.file.empty()) return config.file;
  if (config.nodes.size() == 1)
    for (const auto& [key, value] : config.nodes[0].keys)
      if (key == "backend" && value.kind() == Kind::kStr) return std::string(value.as_text());
  std::string names;
  for (const PipeConfig::Section& node : config.nodes) names += (names.empty() ? "" : ", ") + node.name;
  return names;
}

// Calls `use` with the name of each backend that runs, for messages; without memory for the names, with none.
template <class Use>
void for_each_running(Service& service, const Use& use) noexcept {
  try {
    for (const std::string& name : service.running()) use(name);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

std::shared_ptr<PipeState> PipeState::build(const PipeConfig& config, const std::map<std::string, Ref<Queue>>& queues) {
  Explanation explanation;
  auto [plan, problems] = plan_pipe(config, &explanation);
  if (!problems.empty()) throw PlanProblems{std::move(problems)};
  std::shared_ptr<PipeState> state(new PipeState, &PipeState::discard);
  state->plan_ = std::move(plan);
  state->explanation_ = std::move(explanation);
  state->context_->name = name_of(config);
  for (const auto& [name, queue] : queues) state->context_->resources.share_queue(name, queue);
  try {
    state->make();
  } catch (...) {
    if (state->context_->shutdown.has_detached_init()) throw;  // the detached init owns the pipe and ends it
    const Error error = current_error();
    const UninterruptibleScope must_finish;
    if (state->end_visits(after(kGracePeriod)))
      state->destroy();
    else
      state->leak_intentionally();
    throw with_abandoned(error, state->context_->shutdown.take_abandoned());
  }
  state->plan_.reset();
  return state;
}

template <class Use>
void PipeState::for_each_service(const Use& use) {
  for (const auto& weak : context_->shutdown.services())
    if (const auto service = weak.lock()) use(*service);
}

// The last reference to a pipe whose build was interrupted may drop on a worker of the pipe, which cannot join itself.
void PipeState::discard(PipeState* state) {
  if (state->destroying_ || !Worker::on_some_worker()) {
    delete state;
    return;
  }
  try {
    const auto closer = std::make_shared<Worker>("hami-closer");
    closer->post([closer, state] { delete state; });
  } catch (...) {  // no thread, no memory: it is never freed
  }
}

// The maximum that the instances declare, where the configuration has none.
void PipeState::explain_max() {
  for (std::size_t i = 0; i < explanation_.nodes.size(); ++i) {
    const Backend* const node = context_->instances.find("node." + context_->graph[i].name);
    if (!node || !node->range().declared()) continue;
    const Range range = node->range();
    explanation_.nodes[i].settle("max",
                                 range.is_auto() ? Value(kAutoWord) : Value(static_cast<std::int64_t>(range.max)));
  }
}

void PipeState::make() {
  generation_ = fork_generation();
  context_->shutdown.set_pipe(weak_from_this());
  context_->graph = plan_->graph;
  interpreter_->make(*plan_, context_);
  entry_ = interpreter_->entrypoint();
  context_->instances.check_expected();
  explain_max();
  for_each_service([](Service& service) { service.start(); });
  context_->shutdown.set_opened();
  opened_at_ = now();
  non_blocking_ = context_->resources.non_blocking() && entry_->is_asynchronous();
}

PipeState::~PipeState() { destroy(); }

// Waits for threads outside of the pipe that use its instances. False: they did not return in time.
bool PipeState::end_visits(Nanoseconds until) {
  try {
    const std::vector<std::string> visited = context_->instances.end_visits(until);
    for (const std::string& name : visited) context_->shutdown.report_abandoned(name + ", which another thread uses");
    return visited.empty();
  } catch (const std::bad_alloc&) {  // out of memory for the names
    return false;
  }
}

void PipeState::destroy() noexcept {
  for_each_service([](Service& service) { service.stop(); });
  context_->instances.clear();
  entry_ = nullptr;
  interpreter_ = nullptr;
}

bool PipeState::open_call(Call& call) {
  MutexLock lock(mutex_);
  if (closing_) throw Error::pipe_closed();
  ++starting_;
  call.next_ = first_;
  if (first_) first_->previous_ = &call;
  first_ = &call;
  call.retain();
  return call.join_batch();
}

void PipeState::close_call(Call& call) noexcept {
  {
    MutexLock lock(mutex_);
    (call.previous_ ? call.previous_->next_ : first_) = call.next_;
    if (call.next_) call.next_->previous_ = call.previous_;
    if (closing_) drained_.notify_all();
  }
  call.release();
}

void PipeState::left_start() noexcept {
  if (--starting_ > 0 || !closing_) return;
  MutexLock lock(mutex_);
  drained_.notify_all();
}

Ref<Call> PipeState::run(std::vector<Dict> dicts, Nanoseconds timeout, BackendPtr instance) {
  const BlockedScope wait(WaitToken::Release::kEarly);
  Ref<Call> call = begin(std::move(dicts), timeout, InlinePolicy::kAllow, {}, wait.token(), std::move(instance));
  call->wait();
  return call;
}

Ref<Call> PipeState::start(std::vector<Dict> dicts, Nanoseconds timeout, InlinePolicy how,
                           Call::OnComplete on_complete) {
  Ref<WaitToken> token =
      ExecutionFrame::on_this_thread() ? make_counted<WaitToken>(WaitToken::Release::kEarly) : Ref<WaitToken>();
  return begin(std::move(dicts), timeout, how, std::move(on_complete), std::move(token));
}

Ref<Call> PipeState::begin(std::vector<Dict> dicts, Nanoseconds timeout, InlinePolicy how, Call::OnComplete on_complete,
                           Ref<WaitToken> token, BackendPtr instance) {
  const WorkScope starting(context_.get());  // a callback cannot wait for this to return
  if (generation_ != fork_generation())
    throw Error(ErrorCode::kInternal, "this pipe was made before the process forked; make a new one in the child");
  const bool waits = !on_complete;
  Ref<Call> call = make_counted<Call>(shared_from_this(), std::move(dicts), std::move(on_complete), token);
  call->instance_ = std::move(instance);
  if (call->size() == 0) {
    if (call->on_complete_) call->on_complete_(*call);
    return call;
  }
  const Nanoseconds moment = now();
  const Nanoseconds limit = std::min(timeout, context_->resources.timeout());
  std::vector<Request*>& good = call->open_;
  std::vector<Request*> bad;
  for (Call::Slot& slot : call->slots_) {
    Request& request = *slot.request;
    request.dict.erase(kResult);
    request.wait_token = Ref<Counted>(token.get());
    (take_parts(request) && read_urgency(request, limit, moment) ? good : bad).push_back(&request);
    if (NodeVisits::any_recorded()) take_visits(request, moment);
    if (request.deadline != kNever && !request.visits) request.visits = make_object<NodeVisits>(moment);
    call->next_deadline_ = std::min(call->next_deadline_, request.deadline);
  }
  if (trace::active()) call->trace_begin(moment);
  const bool needed = open_call(*call);  // from here on a close may complete it at any time
  for (Call::Slot& slot : call->slots_) slot.request->sink = Ref<CompletionSink>(call.get());
  complete_requests(Batch(bad));
  if (!needed) {
    for (Request* request : good) request->fail(Error::cancelled());
    complete_requests(Batch(good));
  } else if (!good.empty()) {
    try {
      if (!waits) call->watch_deadlines();
      launch(call, how == InlinePolicy::kAllow && call->next_deadline_ != kNever ? InlinePolicy::kNonBlocking : how);
    } catch (...) {  // no thread, no memory
      const Error error = current_error();
      for (Request* request : good) request->fail(error);
      complete_requests(Batch(good));
    }
  }
  left_start();
  if (const std::optional<Interrupted> interrupted = take_stored_interrupt()) {
    call->give_up(*interrupted);
    throw Interrupted(*interrupted);
  }
  return call;
}

// Throws only if it started nothing.
void PipeState::launch(const Ref<Call>& call, InlinePolicy how) {
  // A caller with a deadline, or one that may be interrupted, must be able to leave, so blocking work runs on the pool. Two
  // exceptions stay on their thread: a backend that calls its own pipe (the node detects the recursion there), and a callback
  // on a pool thread (there may be no other thread).
  Backend& start = start_of(*call);
  const bool may_wait_here =
      start.traits().non_blocking || ExecutionFrame::on_this_thread() || WorkerPool::on_some_pool();
  if (start.is_asynchronous() || (how == InlinePolicy::kAllow && may_wait_here))
    return start.post(Batch(call->open_), how);
  if (!pool_.post([call] { call->pipe_->run_launched(*call); })) call->has_to_wait_ = true;
}

void PipeState::run_launched(Call& call) noexcept {
  if (call.launched_.exchange(true)) return;
  start_of(call).post(Batch(call.open_), InlinePolicy::kAllow);
}

void PipeState::help(Call& call) {
  if (!call.has_to_wait_) return;
  const WorkScope helping(context_.get());
  {
    MutexLock lock(mutex_);
    if (call.complete()) return;
    ++starting_;  // while the call is open, so that the shutdown waits for this
  }
  run_launched(call);
  left_start();
}

void PipeState::give_up_open_calls() noexcept {
  const auto next_call = [&] {
    MutexLock lock(mutex_);
    Call* call = first_;
    while (call && call->given_up_) call = call->next_;
    if (call) call->given_up_ = true;
    return Ref<Call>(call);
  };
  while (const Ref<Call> call = next_call()) call->give_up(closed_while_open);
}

// Abandoned backends may still run, so their pipe is never freed.
void PipeState::leak_intentionally() noexcept {
  static PipeState* latest = nullptr;
  MutexLock lock(leaked_mutex);
  if (leaked_) return;
  leaked_ = shared_from_this();
  previous_leaked_ = std::exchange(latest, this);
}

bool PipeState::finish(Nanoseconds timeout) {
  if (generation_ != fork_generation()) return true;
  closing_ = true;
  return drain(after(timeout));
}

std::vector<std::string> PipeState::close(Nanoseconds timeout) {
  const std::shared_ptr<PipeState> self = shared_from_this();
  if (generation_ != fork_generation()) {  // its threads exist in the parent only
    leak_intentionally();
    return {};
  }
  const Nanoseconds until = after(timeout);
  const bool was_closing = closing_.exchange(true);
  const bool first = !ending_.exchange(true);
  if (WorkScope::inside(context_.get())) {  // a thread cannot wait for its own end
    if (!first) return {};
    try {
      end_later(until);
    } catch (...) {  // no thread, no memory: the pipe stays open
      closing_ = was_closing;
      ending_ = false;
      throw;
    }
    return {};
  }
  try {
    if (first) {
      end(until);
      return context_->shutdown.take_abandoned();
    }
    wait_for(mutex_, drained_, until, [&] {
      mutex_.assert_held();
      return closed_;
    });
    if (in_background_) return context_->shutdown.take_abandoned();
  } catch (const Error& interrupt) {
    Error error = interrupt;
    if (first) {
      for_each_service([&](Service& service) {
        for_each_running(service, [&](const std::string& name) {
          error = error.with_note("close of " + name + ", which still runs");
        });
      });
      try {
        end_later(kNoWait);
      } catch (...) {  // no thread, no memory
        const UninterruptibleScope must_finish;
        end(kNoWait);
      }
    }
    store_interrupt(error);
  }
  return {};
}

// The thread is created now, because a thread kept for this purpose would not exist in a forked child.
void PipeState::close_elsewhere(Nanoseconds timeout) noexcept {
  try {
    const auto closer = std::make_shared<Worker>("hami-closer");
    closer->post([closer, self = shared_from_this(), timeout] { self->close(timeout); });
  } catch (...) {  // no memory for a thread: nothing can close it here
    leak_intentionally();
  }
}

void PipeState::close_in_background() {
  if (generation_ != fork_generation()) return;
  closing_ = true;
  if (ending_.exchange(true)) return;
  try {
    end_later(kNoWait);
    in_background_ = true;
  } catch (...) {  // no thread, no memory: `close` ends it
    ending_ = false;
  }
}

void PipeState::end_later(Nanoseconds timeout) {
  const auto closer = std::make_shared<Worker>("hami-closer");
  closer->post([closer, self = shared_from_this(), timeout] { self->end(timeout); });
}

// Waits until all requests are complete. False: they are not in time.
bool PipeState::drain(Nanoseconds until) {
  for (;;) {
    if (is_quiet()) start_waiting();
    const auto drained = [&] {
      mutex_.assert_held();
      return !first_ && starting_ == 0;
    };
    if (wait_for(mutex_, drained_, std::min(until, after(kInterruptPoll)), drained)) return true;
    if (now() >= until) return false;
    check_interrupt();
  }
}

// Whether the open requests wait for others that cannot come: nothing runs, and nothing is on its way from one node to another.
bool PipeState::is_quiet() {
  const auto events = [&] {
    std::uint64_t sum = 0;
    for (const auto& [node, stats] : context_->resources.all_stats()) sum += stats.submitted + stats.batches;
    return sum;
  };
  const auto nothing_runs = [&] {
    bool quiet = starting_ == 0 && pool_.is_quiet();
    for_each_service([&](Service& service) { quiet = quiet && service.is_quiet(); });
    return quiet;
  };
  // Between two looks without an event in between, all parts are quiet at the same time.
  const std::uint64_t before = events();
  return nothing_runs() && nothing_runs() && events() == before;
}

// Batches below the minimum size come last: the others may still send them requests.
void PipeState::start_waiting() {
  for (const bool below_min : {false, true}) {
    bool started = false;
    for_each_service([&](Service& service) { started = service.start_waiting(below_min) || started; });
    if (started) return;
  }
}

void PipeState::end(Nanoseconds timeout) {
  const std::shared_ptr<PipeState> self = shared_from_this();
  const WorkScope ending(context_.get());  // a callback or the close of a backend may close the pipe again
  const Nanoseconds until = drain(timeout) ? std::max(timeout, after(kGracePeriod)) : after(kGracePeriod);
  context_->shutdown.set_close_until(until);
  context_->shutdown.root_request()->abandon();
  give_up_open_calls();
  for_each_service([](Service& service) { service.stop(); });
  bool joined = true;
  for_each_service([&](Service& service) {
    if (service.join(until)) return;
    joined = false;
    for_each_running(service, [&](const std::string& name) { context_->shutdown.report_abandoned(name); });
  });
  joined = pool_.stop(until) && joined;
  timer_.stop();
  joined = drain(until) && joined && end_visits(until);
  destroying_ = true;
  if (joined)
    destroy();
  else
    leak_intentionally();
  {
    MutexLock lock(mutex_);
    closed_ = true;
    drained_.notify_all();
  }
}

Error with_abandoned(Error error, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    error = error.with_note("close of " + name + ", which did not return in time and was abandoned");
  return error;
}

void register_core() {
  static const bool once = [] {
    register_containers(Registry::instance());
    register_scheduling(Registry::instance());
    register_interpreter(Registry::instance());
    return true;
  }();
  (void)once;
}

}  // namespace hami
