// PipeState: a built pipe: its backends, its open calls, and its shutdown.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/api.hpp"
#include "pipe/call.hpp"
#include "pipe/interpreter.hpp"
#include "pipe/planner.hpp"

namespace hami {

// Thrown when a configuration cannot be built: all its errors.
struct PlanProblems {
  std::vector<Error> problems;
};

// Registers the core's own classes. Call it before the first pipe; further calls have no effect.
void register_core();

// The error with a note for each abandoned backend.
Error with_abandoned(Error error, const std::vector<std::string>& names);

class PipeState : public std::enable_shared_from_this<PipeState> {
 public:
  // Throws PlanProblems, or the Error of the backend that could not be initialised.
  // `queues`: of the program, which the pipe uses instead of queues of its own with these names.
  static std::shared_ptr<PipeState> build(const PipeConfig& config,
                                          const std::map<std::string, Ref<Queue>>& queues = {});
  ~PipeState();

  // Runs the requests and waits until they are complete. Throws Error if the pipe is closed or the process was forked, and
  // Interrupted, after giving up all requests; an error of a single request becomes its outcome. `instance`: where they start
  // instead of at the entrypoint.
  Ref<Call> run(std::vector<Dict> dicts, Nanoseconds timeout, BackendPtr instance = nullptr);
  // Starts the requests, for a caller that will not wait inside a backend. `how` is kAllow if the caller will wait.
  Ref<Call> start(std::vector<Dict> dicts, Nanoseconds timeout, InlinePolicy how, Call::OnComplete on_complete = {});

  // Accepts nothing more, and waits until the open requests are complete; `close` ends the threads. False: they are not in time.
  bool finish(Nanoseconds timeout);
  // Lets another thread close the pipe without waiting for open requests, so that several pipes share the grace period: `close`
  // waits for it.
  void close_in_background();
  // Accepts nothing more, finishes open requests until the timeout, fails the rest, and ends all threads. Returns the names of
  // backends that did not return in time: they are abandoned, and their memory is never freed.
  // On a thread of the pipe itself (a callback) it returns at once and the shutdown continues on another thread.
  // If it is interrupted it returns at once, too: the shutdown continues on another thread, which gives running requests no more
  // than the grace period. The interrupt is stored, with notes that name what runs, and thrown later.
  std::vector<std::string> close(Nanoseconds timeout);
  // For a thread of a pipe, which cannot wait for its own end: a new thread closes it. Without memory for a thread, it stays open
  // and is never freed.
  void close_elsewhere(Nanoseconds timeout) noexcept;
  bool closed() const noexcept { return closing_.load(std::memory_order_relaxed); }

  // True if a call takes microseconds and never blocks while an instance is idle.
  bool non_blocking() const noexcept { return non_blocking_; }
  Nanoseconds opened_at() const noexcept { return opened_at_; }
  PipeContext& context() const noexcept { return *context_; }
  // The backends that were built, and their parameters.
  const Explanation& explanation() const noexcept { return explanation_; }
  const std::map<std::string, NodeStats>& stats() const noexcept { return context_->resources.all_stats(); }
  const std::map<std::string, NodeTimes>& times() const noexcept { return context_->resources.all_times(); }
  const std::map<std::string, Counters>& counters() const noexcept { return context_->resources.all_counters(); }
  const std::map<std::string, Remarks>& remarks() const noexcept { return context_->resources.all_remarks(); }

 private:
  friend class Call;
  PipeState() = default;
  static void discard(PipeState* state);
  void make();
  void explain_max();
  void destroy() noexcept;
  bool end_visits(Nanoseconds until);
  template <class Use>
  void for_each_service(const Use& use);
  void end(Nanoseconds timeout);        // throws Error if interrupted; then it may be called again
  void end_later(Nanoseconds timeout);  // on another thread
  bool drain(Nanoseconds until);
  bool is_quiet();
  void start_waiting();
  Ref<Call> begin(std::vector<Dict> dicts, Nanoseconds timeout, InlinePolicy how, Call::OnComplete on_complete,
                  Ref<WaitToken> token, BackendPtr instance = nullptr);
  void launch(const Ref<Call>& call, InlinePolicy how);
  void run_launched(Call& call) noexcept;  // unless another thread runs or has run it
  Backend& start_of(const Call& call) const noexcept { return call.instance_ ? *call.instance_ : *entry_; }
  void help(Call& call);       // work helping: runs it here if it waits for a thread of the pool
  bool open_call(Call& call);  // false: it is a call of a batch that is cancelled
  void close_call(Call& call) noexcept;
  void left_start() noexcept;
  void give_up_open_calls() noexcept;
  void leak_intentionally() noexcept;

  Explanation explanation_;
  std::optional<PipePlan> plan_;  // only while the pipe is built
  std::shared_ptr<PipeContext> context_ = std::make_shared<PipeContext>();
  std::shared_ptr<Interpreter> interpreter_ = std::make_shared<Interpreter>();
  BackendPtr entry_;  // the interpreter's entrypoint
  bool non_blocking_ = false;
  unsigned generation_ = 0;
  Nanoseconds opened_at_ = 0;
  Timer timer_{context_.get()};
  WorkerPool pool_{"hami-submit", 64, context_.get()};  // for entrypoints that block

  std::atomic<bool> closing_{false};        // no new requests
  std::atomic<bool> ending_{false};         // a thread runs end(), or has run it
  std::atomic<bool> in_background_{false};  // close_in_background() has begun it
  std::atomic<bool> destroying_{false};     // backends are being closed
  std::atomic<std::size_t> starting_{0};    // callers inside start()
  Mutex mutex_;
  CondVar drained_;
  bool closed_ HAMI_GUARDED_BY(mutex_) = false;
  Call* first_ HAMI_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<PipeState> leaked_;  // itself, if it is never freed
  PipeState* previous_leaked_ = nullptr;
};

}  // namespace hami
