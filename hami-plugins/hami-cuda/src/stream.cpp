// Streams and memory in their order.
#include "stream.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace hami_cuda {
namespace {

// A blocking wait costs tens of microseconds, mostly for the interrupt. Short work is done before.
constexpr std::chrono::microseconds kSpin{50};
// A wait that took so long in all would have gained nothing by spinning. After kLongInARow of them the next one sleeps at once.
constexpr std::chrono::microseconds kLong{250};
constexpr int kLongInARow = 4;

// Whether the event happened while this thread spun; without a limit it does.
bool spin(const Event& event, bool is_limited) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!event.is_done()) {
    if (is_limited && std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

void Waiter::wait(const Event& event) {
  if (how_ == Wait::kSpin) return void(spin(event, false));
  if (how_ == Wait::kSleep) return event.wait();
  const auto start = std::chrono::steady_clock::now();
  if (long_waits_ >= kLongInARow || !spin(event, true)) event.wait();
  const bool was_long = std::chrono::steady_clock::now() - start > kLong;
  long_waits_ = was_long ? std::min(kLongInARow, long_waits_ + 1) : 0;
}

Stream::Stream(const Device& device) : device_(device) {
  driver().check(api().stream_create(&stream_, kNonBlockingStream), "cannot create a stream");
}

void Stream::finish() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  CUcontext popped = nullptr;
  if (held_.empty() || api().context_push(device_.context()) != 0) return;
  api().stream_synchronize(stream_);
  held_.clear();
  api().context_pop(&popped);
}

std::unique_ptr<Event> Stream::take_event() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_events_.empty()) {
      std::unique_ptr<Event> event = std::move(spare_events_.back());
      spare_events_.pop_back();
      return event;
    }
  }
  return std::make_unique<Event>(device_);
}

void Stream::wait(Waiter& waiter) {
  std::vector<Held> held;
  std::unique_ptr<Event> event = take_event();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    held.swap(held_);
  }
  const std::uint64_t own = ++begun_;
  event->record(stream_);
  waiter.wait(*event);
  for (std::uint64_t last = ended_; last < own && !ended_.compare_exchange_weak(last, own);) continue;
  device_.return_surplus();
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_events_.push_back(std::move(event));
  for (Held& each : held) spare_events_.push_back(std::move(each.done));
}

void Stream::hold_back(std::int64_t other) {
  if (other == handle()) return;
  std::unique_ptr<Event> event = take_event();
  event->record(stream_);
  event->hold_back(reinterpret_cast<CUstream>(other));
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_events_.push_back(std::move(event));
}

void Stream::hold(std::shared_ptr<void> objects) {
  std::vector<std::shared_ptr<void>> dropped;  // after the lock: dropping may run code of Python
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!held_.empty() && held_.front().done->is_done()) {
    dropped.push_back(std::move(held_.front().objects));
    spare_events_.push_back(std::move(held_.front().done));
    held_.erase(held_.begin());
  }
  if (spare_events_.empty()) spare_events_.push_back(std::make_unique<Event>(device_));
  std::unique_ptr<Event> done = std::move(spare_events_.back());
  spare_events_.pop_back();
  done->record(stream_);
  held_.push_back({std::move(done), std::move(objects)});
}

namespace {
thread_local StreamScope* innermost = nullptr;
}  // namespace

StreamScope::StreamScope(const std::shared_ptr<Stream>& stream) : stream_(stream), outer_(innermost) {
  innermost = this;
}

StreamScope::~StreamScope() { innermost = outer_; }

const std::shared_ptr<Stream>& StreamScope::stream_of(const std::shared_ptr<Stream>& own) noexcept {
  for (const StreamScope* scope = innermost; scope; scope = scope->outer_)
    if (&scope->stream_->device() == &own->device()) return scope->stream_;
  return own;
}

Memory::Memory(std::shared_ptr<Stream> stream, std::size_t size)
    : stream_(std::move(stream)),
      size_(size > 0 ? size : 1),
      start_(stream_->device().allocate(size_, stream_->raw())) {}

// At the exit of the process the driver may be gone: its errors are ignored.
Memory::~Memory() {
  const CudaApi& api = stream_->api();
  CUcontext popped = nullptr;
  if (api.context_push(stream_->device().context()) != 0) return;
  if (readers_.size() == 1 && is_complete() && stream_->device().frees_in_any_order()) {
    stream_->device().release(start_, size_, reinterpret_cast<CUstream>(*readers_.begin()));
    api.context_pop(&popped);
    return;
  }
  CUevent event = nullptr;
  if (!readers_.empty() && api.event_create(&event, kEventWithoutTime) == 0) {
    for (const std::int64_t reader : readers_)
      if (api.event_record(event, reinterpret_cast<CUstream>(reader)) == 0)
        api.stream_wait_event(stream_->raw(), event, 0);
    api.event_destroy(event);
  }
  stream_->device().release(start_, size_, stream_->raw());
  api.context_pop(&popped);
}

void Memory::order(std::int64_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream == stream_->handle()) {
    if (written_) set_written();  // work that reads it follows: freeing it must be ordered with that too
    return;
  }
  if (is_complete()) {
    readers_.insert(stream);
    return;
  }
  const CurrentDevice current(stream_->device());
  Event written(stream_->device());
  written.record(stream_->raw());
  written.hold_back(reinterpret_cast<CUstream>(stream));
  readers_.insert(stream);
}

}  // namespace hami_cuda
