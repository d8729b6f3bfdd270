// Call: the requests of one call of a pipe, and the timer that expires them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "backend/api.hpp"
#include "request/api.hpp"

namespace hami {

// Call: the requests of one call of a pipe, from their start until each of them is complete.
class PipeState;

class Call final : public NestedCall {
 public:
  using OnComplete = std::function<void(Call&)>;

  // `on_complete` (may be empty) runs once, without any lock held, on the thread that completes the last request. `token`:
  // null, or the wait token that the requests carry.
  Call(std::shared_ptr<PipeState> pipe, std::vector<Dict> dicts, OnComplete on_complete, Ref<WaitToken> token);

  std::size_t size() const noexcept { return slots_.size(); }
  // After completion: the error, or null. After a success the dict may be read.
  const Error* error(std::size_t index) const noexcept;
  const Dict& dict(std::size_t index) const noexcept { return slots_[index].request->dict; }

  // Waits until all requests are complete; those whose deadline passes fail. If interrupted, it gives up all requests and
  // throws.
  void wait();
  // For a thread inside a backend, or of a pool, before it waits for a submitted call in another way: waits, unless the wait
  // would complete a deadlock cycle; then it gives up this call. On other threads it returns at once. Throws if interrupted.
  void wait_inside();

  Parker* complete(Request* const* requests, std::size_t count) noexcept override;
  bool only_wakes() const noexcept override { return true; }
  bool calls_back() const noexcept override { return calls_back_; }
  // Completes every open request with this error; results that backends still produce for it are discarded. False: all were
  // complete.
  bool give_up(const Error& error) noexcept override;
  // The same for requests whose deadline has passed. Returns the next deadline.
  Nanoseconds expire(Nanoseconds moment) noexcept;
  bool complete() const;

 private:
  friend class PipeState;
  struct Slot {
    Ref<Request> request;
    std::optional<Error> error;
    bool settled = false;
  };

  void settle(Slot& slot, std::optional<Error> error) noexcept HAMI_REQUIRES(parker_.mutex);
  void trace_begin(Nanoseconds moment) noexcept;  // before the call starts
  void trace_end(const Slot& slot) const noexcept;
  enum class Waking { kHere, kLeft };
  void completed(Waking waking) noexcept;
  void watch_deadlines();  // for callers that do not wait on a thread: the pipe's timer expires the requests
  void forget_deadlines() noexcept;

  std::shared_ptr<PipeState> pipe_;
  BackendPtr instance_;  // where the requests start; null: at the entrypoint
  std::vector<Slot> slots_;
  std::vector<Request*> open_;  // those that did not fail before they started; written before the call starts
  const bool calls_back_;
  OnComplete on_complete_;
  const Ref<WaitToken> token_;
  Nanoseconds next_deadline_ = kNever;  // set before the call starts
  Nanoseconds traced_from_ = 0;         // if its requests are in the timeline
  Parker parker_;                       // its mutex guards the outcomes in slots_, and remaining_
  std::size_t remaining_;
  std::atomic<bool> launched_{false};     // a thread that may block runs it
  std::atomic<bool> has_to_wait_{false};  // it waits for such a thread
  std::atomic<bool> complete_{false};     // remaining_ == 0, readable without the mutex

  Call* previous_ = nullptr;  // in the pipe's list of open calls, guarded by the pipe's mutex
  Call* next_ = nullptr;
  bool given_up_ = false;  // by the close of the pipe; guarded by the pipe's mutex
};

// Timer: expires requests for which no thread waits.
class Timer {
 public:
  // `owner`: the pipe that the thread works for (WorkScope).
  explicit Timer(const void* owner) noexcept : owner_(owner) {}
  ~Timer();
  void add(Nanoseconds moment, Call& call);  // starts the thread on first use
  void remove(Nanoseconds moment, Call& call) noexcept;
  void stop() noexcept;

 private:
  void loop();

  const void* const owner_;
  Mutex mutex_;
  CondVar changed_;
  // Open calls, once for each deadline. A call removes itself when it is complete, before it can be destroyed.
  std::set<std::pair<Nanoseconds, Call*>> calls_ HAMI_GUARDED_BY(mutex_);
  bool stopping_ HAMI_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Worker> worker_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
