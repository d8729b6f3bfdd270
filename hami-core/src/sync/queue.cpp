// Queue: values are moved under the mutex, and never copied or destroyed there.
#include "sync/queue.hpp"

#include <iterator>
#include <utility>

namespace hami {

Queue::Queue(std::int64_t max, std::string name) : OpaqueObject(kTypeKey), name_(std::move(name)) { set_max(max); }

Queue::~Queue() {
  for (Value& value : values_) deferred_destroy(std::move(value));
}

void Queue::set_max(std::int64_t max) {
  if (max < 1)
    throw Error(ErrorCode::kConfig, "max of " + label() + " is " + std::to_string(max) + "; it must be at least 1");
  max_ = static_cast<std::size_t>(max);
}

std::string Queue::label() const { return name_.empty() ? "the queue" : "queue " + in_quotes(name_); }

void Queue::throw_closed() const { throw Error(ErrorCode::kPipeClosed, label() + " is closed"); }

void Queue::add(Value value) {
  values_.push_back(std::move(value));
  has_value_.notify_one();
}

void Queue::push(Value value, Nanoseconds until) {
  if (try_push(value)) return;
  if (until == kNoWait)
    throw Error(ErrorCode::kQueueFull, label() + " is full; it holds at most " + std::to_string(max_));
  bool closed = false;
  Ref<Event> readable;
  const bool in_time = wait_for(mutex_, has_capacity_, until, [&] {
    mutex_.assert_held();
    if (closed_) return closed = true;
    if (values_.size() >= max_) return false;
    add(std::move(value));
    readable = std::move(readable_);
    return true;
  });
  if (readable) readable->notify();
  if (!in_time)
    throw Error(ErrorCode::kDeadlineExceeded,
                label() + " stayed full until the deadline; it holds at most " + std::to_string(max_));
  if (closed) throw_closed();
}

bool Queue::try_push(Value value) {
  Ref<Event> readable;
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      if (values_.size() >= max_) return false;
      add(std::move(value));
      readable = std::move(readable_);
    } else {
      lock.unlock();
      throw_closed();
    }
  }
  if (readable) readable->notify();
  return true;
}

bool Queue::take(std::optional<Value>& value) {
  if (values_.empty()) return closed_;
  value = std::move(values_.front());
  values_.pop_front();
  has_capacity_.notify_one();
  return true;
}

Value Queue::pop(Nanoseconds until) {
  std::optional<Value> taken;
  const auto ready = [&] {
    mutex_.assert_held();
    return take(taken);
  };
  if (!wait_for(mutex_, has_value_, until, ready))
    throw Error(ErrorCode::kDeadlineExceeded, label() + " stayed empty until the deadline");
  if (!taken) throw_closed();
  return std::move(*taken);
}

std::optional<Value> Queue::try_pop() {
  std::optional<Value> taken;
  bool ended = false;
  {
    MutexLock lock(mutex_);
    ended = take(taken) && !taken;
  }
  if (ended) throw_closed();
  return taken;
}

std::vector<Value> Queue::pop_all(Nanoseconds until) {
  std::vector<Value> all;
  const bool in_time = wait_for(mutex_, has_value_, until, [&] {
    mutex_.assert_held();
    if (values_.empty()) return closed_;
    all.reserve(values_.size());
    std::move(values_.begin(), values_.end(), std::back_inserter(all));
    values_.clear();
    has_capacity_.notify_all();
    return true;
  });
  if (!in_time) throw Error(ErrorCode::kDeadlineExceeded, label() + " stayed empty until the deadline");
  return all;
}

Ref<Event> Queue::readable() {
  Ref<Event> event = make_object<Event>();
  {
    MutexLock lock(mutex_);
    if (values_.empty() && !closed_) {
      if (!readable_) readable_ = event;
      return readable_;
    }
  }
  event->notify();
  return event;
}

std::optional<Value> Queue::next() {
  std::optional<Value> taken;
  wait_for(mutex_, has_value_, kNever, [&] {
    mutex_.assert_held();
    consumer_waits_ = !take(taken);
    return !consumer_waits_;
  });
  return taken;
}

bool Queue::starved() const noexcept {
  MutexLock lock(mutex_);
  return consumer_waits_ && values_.empty();
}

std::optional<Value> Queue::peek() const {
  MutexLock lock(mutex_);
  return values_.empty() ? std::nullopt : std::optional<Value>(values_.front());
}

std::size_t Queue::size() const noexcept {
  MutexLock lock(mutex_);
  return values_.size();
}

void Queue::close() noexcept {
  Ref<Event> readable;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    has_capacity_.notify_all();
    has_value_.notify_all();
    readable = std::move(readable_);
  }
  if (readable) readable->notify();
}

bool Queue::closed() const noexcept {
  MutexLock lock(mutex_);
  return closed_;
}

Queue* find_queue(const Value& value) noexcept { return dynamic_cast<Queue*>(value.object()); }

Queue& as_queue(const Value& value) {
  Queue* queue = find_queue(value);
  if (!queue) throw Error(ErrorCode::kDataType, std::string("expected Queue, got ") + kind_name(value.kind()));
  return *queue;
}

}  // namespace hami
