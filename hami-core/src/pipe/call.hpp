// The requests that one call brought in, from their start until each of them has its one outcome.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sync/parker.hpp"
#include "request/wait_graph.hpp"

namespace hami {

class PipeState;

class Call final : public CompletionSink {
 public:
  using OnComplete = std::function<void(Call&)>;

  // `on_complete` (may be empty) runs once, without any lock held, on the thread that brings the last outcome. `ask`: null,
  // or what its requests carry.
  Call(std::shared_ptr<PipeState> pipe, std::vector<Dict> dicts, OnComplete on_complete, Ref<WaitToken> token);

  std::size_t size() const noexcept { return slots_.size(); }
  // After completion: the reason of failure, or null. On success its dict may be read.
  const Error* error(std::size_t index) const noexcept;
  const Dict& dict(std::size_t index) const noexcept { return slots_[index].request->dict; }

  // Waits for all outcomes; requests whose deadline passes are failed. Throws, leaving all requests, if interrupted.
  void wait();
  // For a thread inside a backend, or of a pool, before it waits for a submitted call in any other way: waits, unless that
  // would close a circle of calls, for which this one is given up. Elsewhere it returns at once. Throws if interrupted.
  void wait_inside();

  Parker* complete(Request* const* requests, std::size_t count) noexcept override;
  bool only_wakes() const noexcept override { return true; }
  bool calls_back() const noexcept override { return calls_back_; }
  // Gives every request that has none this outcome; what its backends still do for it is discarded.
  // False: all had one already.
  bool give_up(const Error& error) noexcept;
  // The same for requests whose deadline is past. Returns the next deadline.
  Nanoseconds expire(Nanoseconds moment) noexcept;
  bool complete() const;

 private:
  friend class PipeState;
  struct Slot {
    Ref<Request> request;
    std::optional<Error> error;
    bool settled = false;
  };

  void settle(Slot& slot, std::optional<Error> error) noexcept;  // under mutex_
  enum class Waking { kHere, kLeft };
  void completed(Waking waking) noexcept;
  void watch_deadlines();  // lets the pipe's timer fail what is late, for callers that do not wait on a thread
  void forget_deadlines() noexcept;

  std::shared_ptr<PipeState> pipe_;
  std::vector<Slot> slots_;
  const bool calls_back_;
  OnComplete on_complete_;
  const Ref<WaitToken> token_;
  Nanoseconds next_deadline_ = kNever;  // set before the start
  Parker parker_;  // its mutex guards the outcomes in slots_, and remaining_
  std::size_t remaining_;
  std::atomic<bool> launched_{false};     // a thread runs it that can wait
  std::atomic<bool> has_to_wait_{false};  // for such a thread
  std::atomic<bool> told_{false};  // remaining_ is 0, for a look without the mutex

  Call* previous_ = nullptr;  // in the pipe's list of open calls; guarded by the pipe
  Call* next_ = nullptr;
};

}  // namespace hami
