// Backend: what surrounds the functions of authors: splitting of batches, error notes, retries.
#include "backend/backend.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lang/api.hpp"

namespace hami {
namespace {

// Waits on the caller's thread for the requests that it posted.
class Waiter final : public CompletionSink {
 public:
  explicit Waiter(std::size_t count) : remaining_(count) {}

  Parker* complete(Request* const*, std::size_t count) noexcept override {
    MutexLock lock(mutex_);
    remaining_ -= count;
    if (remaining_ == 0) changed_.notify_all();
    return nullptr;
  }

  void wait() {
    {
      MutexLock lock(mutex_);
      if (remaining_ == 0) return;
    }
    BlockingScope blocking;
    MutexLock lock(mutex_);
    changed_.wait(lock, [&] {
      mutex_.assert_held();
      return remaining_ == 0;
    });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::size_t remaining_ HAMI_GUARDED_BY(mutex_);
};

// A request that is listed twice would run twice concurrently and complete twice.
void check_distinct(const Backend& backend, Batch batch) {
  // Plain addresses, as in the binding: one instance of std::sort for both.
  std::vector<const void*> addresses(batch.begin(), batch.end());
  std::sort(addresses.begin(), addresses.end());
  if (std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end())
    throw Error(ErrorCode::kInvalidArgument, backend.label() + " got the same request twice in one batch");
}

}  // namespace

std::string show_max(std::size_t max) { return max == Range::kAuto ? kAutoWord : std::to_string(max); }

Range narrowest(const std::vector<Range>& children) {
  Range narrow;
  for (const Range& range : children)
    if (range.max > 1 && range.max < narrow.max) narrow = range;
  return narrow;
}

void Backend::add_backend_note(Batch batch) const {
  for (Request* request : batch)
    if (!request->alive() && request->error->notes().empty())
      *request->error = request->error->with_note("backend " + label_);
}

void Backend::begin_slice(Batch part, trace::Slice& slice) const noexcept {
  trace::Event event;
  event.category = trace::Category::kBackend;
  event.time = now();
  event.name = trace_name_;
  event.count = static_cast<std::uint16_t>(std::min<std::size_t>(part.items(), UINT16_MAX));
  slice.begin(event);
}

// Adds the name of the innermost backend to the error; containers around it add nothing.
void Backend::forward_part(Batch part) {
  trace::Slice slice;
  if (trace::active() && trace_name_ && trace::samples_step()) begin_slice(part, slice);
  const BackendTimer timer(time_);
  try {
    forward_(part);
  } catch (...) {
    Error error = current_error();
    if (error.notes().empty() && !label_.empty()) error = error.with_note("backend " + label_);
    throw error;
  }
}

void Backend::forward(Batch batch) {
  const std::size_t limit = max();
  if (limit == Range::kUnbounded || batch.items() <= limit) return forward_part(batch);
  for (std::size_t first = 0; first < batch.size();) {
    std::size_t count = 1;
    std::size_t items = batch[first].items;
    while (first + count < batch.size() && items + batch[first + count].items <= limit)
      items += batch[first + count++].items;
    const Batch part = batch.part(first, count);
    first += count;
    if (items > limit) {
      part[0].fail(Error(ErrorCode::kRequest, "request_size is " + std::to_string(items) + "; " + label_ +
                                                  " takes at most " + std::to_string(limit)));
    } else if (count > 1) {
      forward_part(part);
    } else {
      try {
        forward_part(part);
      } catch (...) {  // the error is about the only request of the part
        part[0].fail(current_error());
      }
    }
  }
}

void Backend::forward_with_dep_(Batch, Backend&) {
  throw Error(ErrorCode::kUnimplemented, label_ + " has no forward_with_dep");
}

void Backend::inject_dependency_(const BackendPtr&) {
  throw Error(ErrorCode::kConfig, label_ + " takes no dependency");
}

void Backend::absorb_(BackendPtr next) {
  throw Error(ErrorCode::kPlugin, label_ + " cannot do the work of " + next->label());
}

void Backend::post_(Batch batch, InlinePolicy) {
  forward_with_retry(batch, traits_.idempotent, [this](Batch part) { forward(part); });
  complete_requests(batch);
}

void Backend::post(Batch batch, InlinePolicy how) noexcept {
  try {
    post_(batch, how);
  } catch (...) {
    const Error error = current_error();
    for (Request* request : batch) request->fail(error);
    complete_requests(batch);
  }
}

void post_and_wait(Backend& backend, Batch batch) {
  if (batch.size() > 1) check_distinct(backend, batch);
  const BlockedScope wait(WaitToken::Release::kCompleted);
  const Ref<Waiter> waiter = make_counted<Waiter>(batch.size());
  std::vector<std::tuple<Ref<CompletionSink>, Ref<Counted>, Nanoseconds>> outer;
  outer.reserve(batch.size());
  for (Request* request : batch) {
    outer.emplace_back(std::exchange(request->sink, Ref<CompletionSink>(waiter.get())), request->wait_token,
                       std::exchange(request->queued_at, 0));
    if (wait.token()) request->wait_token = Ref<Counted>(wait.token().get());
  }
  backend.post(batch, InlinePolicy::kAllow);
  waiter->wait();
  for (std::size_t i = 0; i < batch.size(); ++i)
    std::tie(batch[i].sink, batch[i].wait_token, batch[i].queued_at) = std::move(outer[i]);
}

}  // namespace hami
