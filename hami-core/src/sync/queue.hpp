// Queue: a bounded queue of values between threads. A push waits for capacity, a pop waits for a value.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "sync/event.hpp"
#include "sync/waiting.hpp"
#include "value/api.hpp"

namespace hami {

// First in, first out. It travels in a Value as an opaque object of type "hami.queue".
class Queue final : public OpaqueObject {
 public:
  static constexpr const char* kTypeKey = "hami.queue";
  static constexpr std::int64_t kDefaultMax = 1024;

  // `name` is for messages. Error(kConfig) if `max` is below 1.
  explicit Queue(std::int64_t max = kDefaultMax, std::string name = {});
  ~Queue() override;

  // Waits for capacity until `until`. Throws Error: kQueueFull if it may not wait (kNoWait), kDeadlineExceeded if there is
  // no capacity in time, kPipeClosed if the queue is closed, also while this waits.
  void push(Value value, Nanoseconds until = kNever);
  bool try_push(Value value);  // false if the queue is full; throws if it is closed

  // Waits for a value until `until`. Throws Error: kDeadlineExceeded if there is no value in time, kPipeClosed if the queue
  // is closed and empty.
  Value pop(Nanoseconds until = kNever);
  std::optional<Value> try_pop();  // empty if the queue is empty; throws if it is also closed
  // Waits for a value until `until`, and takes all values that there are; none: the queue is closed and empty. Throws as `pop`,
  // but a closed queue gives no values instead of an error.
  std::vector<Value> pop_all(Nanoseconds until = kNever);
  // Complete as soon as there is a value to pop, or the queue is closed. For consumers that cannot wait on a thread.
  Ref<Event> readable();
  // For the loop of a consumer: waits without a limit; empty once the queue is closed and empty.
  std::optional<Value> next();
  // True while the consumer waits in `next` and there is no value for it.
  bool starved() const noexcept;

  // The next value, which stays in the queue; empty if there is none. Does not wait.
  std::optional<Value> peek() const;

  std::size_t size() const noexcept;
  std::size_t max() const noexcept { return max_; }
  // Call it before several threads use the queue. Error(kConfig) if `max` is below 1.
  void set_max(std::int64_t max);
  const std::string& name() const noexcept { return name_; }

  // Accepts nothing more and ends all waits; the remaining values can still be popped.
  void close() noexcept;
  bool closed() const noexcept;

 private:
  std::string label() const;  // `queue "frames"`
  [[noreturn]] void throw_closed() const;
  // False: wait on. True with an empty `value`: the queue is closed and empty.
  bool take(std::optional<Value>& value) HAMI_REQUIRES(mutex_);
  void add(Value value) HAMI_REQUIRES(mutex_);

  std::size_t max_ = 0;
  const std::string name_;
  mutable Mutex mutex_;
  CondVar has_capacity_;
  CondVar has_value_;
  std::deque<Value> values_ HAMI_GUARDED_BY(mutex_);
  bool closed_ HAMI_GUARDED_BY(mutex_) = false;
  bool consumer_waits_ HAMI_GUARDED_BY(mutex_) = false;
  Ref<Event> readable_ HAMI_GUARDED_BY(mutex_);  // not complete; null: no caller waits for it
};

// Null, or Error(kDataType), if the value is not a queue. The result is valid while the value exists.
Queue* find_queue(const Value& value) noexcept;
Queue& as_queue(const Value& value);

}  // namespace hami
