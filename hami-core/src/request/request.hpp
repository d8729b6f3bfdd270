// One request on its way through a node, and a batch of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "value/dict.hpp"
#include "value/error.hpp"
#include "sync/parker.hpp"

namespace hami {

class Request;

// Who waits for requests. Called once for each request, on the thread that finished it, without any lock held.
class CompletionSink : public Counted {
 public:
  // Returns the thread that sleeps for them if the caller is to wake it, with others; else null.
  virtual Parker* complete(Request* const* requests, std::size_t count) noexcept = 0;
  // True if `done` wakes somebody and does no work of its own.
  virtual bool only_wakes() const noexcept { return false; }
  // True if it calls back into the language that the request came from.
  virtual bool calls_back() const noexcept { return false; }
};

// Owned by one party at a time; passing it on hands over the right to touch `dict` and `error`.
class Request : public Counted {
 public:
  Dict dict;
  std::optional<Error> error;  // set: it has failed, and nothing more is run on it
  Ref<CompletionSink> sink;
  Ref<Request> parent;        // the request this is a part or a branch of
  Ref<Counted> wait_token;       // the WaitToken of who waits for it inside a backend (waits.hpp)
  Ref<Counted> owner;         // the sink's own
  std::size_t index = 0;      // the sink's own
  std::size_t items = 1;      // request_size
  Nanoseconds deadline = kNever;
  std::uint8_t priority = 0;
  bool isolates = true;       // its node wants it tried again, alone, if a batch that it is in fails as a whole
  std::vector<Ref<Request>> merged_from;  // those it was gathered from, each with a caller of its own; empty: itself alone

  bool alive() const noexcept { return !error; }
  void fail(Error reason) {
    if (!error) error.emplace(std::move(reason));
  }
  // Its caller has left: whatever it would still do is wasted.
  bool abandoned() const noexcept {
    for (const Request* request = this; request; request = request->parent.get())
      if (request->abandoned_.load(std::memory_order_relaxed)) return true;
    return false;
  }
  // The same, or its time is up and nobody has noticed yet: what a backend asks that may stop early.
  bool cancelled() const noexcept;
  void abandon() noexcept { abandoned_.store(true, std::memory_order_relaxed); }

  // A request of its own with the same keys, whose caller is this one.
  Ref<Request> branch(Ref<CompletionSink> branch_sink, std::size_t branch_index);

 private:
  std::atomic<bool> abandoned_{false};
};

// Borrowed: the requests of one call of forward. Copying it copies two words.
class Batch {
 public:
  Batch(Request* const* requests, std::size_t count) noexcept : requests_(requests), count_(count) {}
  explicit Batch(const std::vector<Request*>& requests) noexcept : Batch(requests.data(), requests.size()) {}

  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  Request& operator[](std::size_t index) const noexcept { return *requests_[index]; }
  Request* const* begin() const noexcept { return requests_; }
  Request* const* end() const noexcept { return requests_ + count_; }
  Batch part(std::size_t first, std::size_t count) const noexcept { return {requests_ + first, count}; }
  std::size_t items() const noexcept;

 private:
  Request* const* requests_;
  std::size_t count_;
};

// Between two steps: `result` becomes `data`. Without a `result` the request has failed (NoResult, naming `step`): false.
bool result_to_data(Request& request, const std::string& step);

// `request_size` of a request; Error(kRequest) if it is no positive int.
std::size_t declared_items(const Dict& dict);
// `priority` of a request, 0 if it has none; Error if it is no int of 0 … 255.
std::uint8_t declared_priority(const Dict& dict);

// True if all that `finish` will do is waking.
bool only_wakes(Batch batch) noexcept;
// Passes each request to its sink, neighbours with the same sink together.
void complete_requests(Batch batch) noexcept;

}  // namespace hami
