// A built pipe: its backends, its open calls, and its end.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sync/worker_pool.hpp"
#include "pipe/call.hpp"
#include "pipe/interpreter.hpp"
#include "pipe/pipe_config.hpp"
#include "pipe/timer.hpp"
#include "backend/pipe_context.hpp"
#include "base/mutex.hpp"

namespace hami {

// Thrown when a configuration cannot be built: all that is wrong with it.
struct PlanProblems {
  std::vector<Error> problems;
};

// Puts the core's own classes into the registry. Before the first pipe; more than once does no harm.
void register_core();

// The error with a note for each of what was abandoned by a close.
Error with_abandoned(Error error, const std::vector<std::string>& names);

class PipeState : public std::enable_shared_from_this<PipeState> {
 public:
  // Throws PlanProblems, or the Error of the backend that could not be initialised.
  static std::shared_ptr<PipeState> build(const PipeConfig& config);
  ~PipeState();

  // Runs the requests and waits for their outcomes. Throws Error(kPipeClosed), if the process was forked, or, leaving all
  // requests, Interrupted; whatever is wrong with a single request becomes its outcome.
  Ref<Call> run(std::vector<Dict> dicts, Nanoseconds timeout);
  // Starts the requests, for a caller that will not wait inside a backend. `how` is kAny if it will wait at all.
  Ref<Call> start(std::vector<Dict> dicts, Nanoseconds timeout, InlinePolicy how, Call::OnComplete on_complete = {});

  // Takes nothing more, finishes what is open until the time is up, then fails it, and ends all threads. Gives what
  // did not come back: it is abandoned, and its memory is never freed.
  // On a thread of the pipe itself (a callback) it returns at once, and the rest happens when the thread has come back.
  // Who is interrupted has no patience left; the interrupt is kept.
  std::vector<std::string> close(Nanoseconds timeout);
  bool closed() const noexcept { return closing_.load(std::memory_order_relaxed); }

  // True if calling it takes microseconds and never waits while an instance is idle.
  bool non_blocking() const noexcept { return non_blocking_; }
  Nanoseconds opened_at() const noexcept { return opened_at_; }
  const std::map<std::string, NodeStats>& stats() const noexcept { return context_->resources.all_stats(); }
  const std::map<std::string, Counters>& counters() const noexcept { return context_->resources.all_counters(); }

 private:
  friend class Call;
  PipeState() = default;
  static void discard(PipeState* state);
  void make();
  void destroy() noexcept;
  std::vector<std::string> end(Nanoseconds patience);
  bool owns_this_thread() noexcept;
  Ref<Call> begin(std::vector<Dict> dicts, Nanoseconds timeout, InlinePolicy how, Call::OnComplete on_complete, Ref<WaitToken> token);
  void launch(const Ref<Call>& call, const std::vector<Request*>& requests, InlinePolicy how);
  void run_launched(Call& call) noexcept;  // unless another thread does, or has
  void help(Call& call);                   // runs it here if it waits for a thread of the pool
  template <class Condition>
  bool wait_until(Nanoseconds until, Condition condition);  // of what mutex_ guards
  bool read_urgency(Request& request, Nanoseconds timeout, Nanoseconds moment) const;
  void open_call(Call& call);
  void close_call(Call& call) noexcept;
  void left_start() noexcept;
  std::vector<Ref<Call>> open_calls();

  std::optional<PipePlan> plan_;  // while it is made
  std::shared_ptr<PipeContext> context_ = std::make_shared<PipeContext>();
  std::shared_ptr<Interpreter> interpreter_ = std::make_shared<Interpreter>();
  BackendPtr entry_;  // the interpreter's entrypoint
  bool non_blocking_ = false;
  unsigned generation_ = 0;
  Nanoseconds opened_at_ = 0;
  Timer timer_;
  WorkerPool pool_{"hami-submit", 64};  // for entrypoints that wait themselves

  std::atomic<bool> closing_{false};
  std::atomic<bool> destroying_{false};  // what runs of this pipe now is the close of a backend
  std::thread::id ended_by_;             // written before destroying_
  std::atomic<std::size_t> starting_{0};  // callers inside start()
  Mutex mutex_;
  CondVar drained_;
  bool closed_ HAMI_GUARDED_BY(mutex_) = false;
  Call* first_ HAMI_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace hami
