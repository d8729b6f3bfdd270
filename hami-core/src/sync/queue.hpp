// A bounded queue of values between threads: who pushes waits for room, who pops waits for values.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "value/value.hpp"
#include "sync/waiting.hpp"
#include "base/mutex.hpp"

namespace hami {

// Travels as an opaque value of type "hami.queue". Values leave it in the order in which they came.
class Queue final : public OpaqueObject {
 public:
  static constexpr const char* kTypeKey = "hami.queue";
  static constexpr std::int64_t kDefaultMax = 1024;

  // `name` is for messages. Error(kConfig) if `max` is below 1.
  explicit Queue(std::int64_t max = kDefaultMax, std::string name = {});
  ~Queue() override;

  // Waits for room until `until`. Throws Error: kQueueFull if it may not wait at all (kNoWait), kDeadlineExceeded if there
  // is still no room then, kPipeClosed if the queue is closed or gets closed meanwhile.
  void push(Value value, Nanoseconds until = kNever);
  bool try_push(Value value);  // false if there is no room; throws if it is closed

  // Waits for a value until `until`. Throws Error: kDeadlineExceeded if there is still none then, kPipeClosed if the queue is
  // closed and nothing is left in it.
  Value pop(Nanoseconds until = kNever);
  std::optional<Value> try_pop();  // empty if there is none; throws if it is closed and nothing is left
  // For a consumer's loop: waits without a limit; empty once the queue is closed and nothing is left.
  std::optional<Value> next();

  // The value that comes out next, which stays; empty if there is none. Does not wait.
  std::optional<Value> peek() const;

  std::size_t size() const noexcept;
  std::size_t max() const noexcept { return max_; }
  // Before it is used by several threads. Error(kConfig) if `max` is below 1.
  void set_max(std::int64_t max);
  const std::string& name() const noexcept { return name_; }

  // Nothing more gets in, whoever waits is told; what is in it may still be popped.
  void close() noexcept;
  bool closed() const noexcept;

 private:
  std::string who() const;  // `queue "frames"`
  [[noreturn]] void throw_closed() const;
  bool take(std::optional<Value>& into);  // under mutex_: true if there is an answer, empty if there will be no value

  std::size_t max_ = 0;
  const std::string name_;
  mutable Mutex mutex_;
  CondVar room_;
  CondVar arrived_;
  std::deque<Value> values_ HAMI_GUARDED_BY(mutex_);
  bool closed_ HAMI_GUARDED_BY(mutex_) = false;
};

// Null, or Error(kDataType), if the value is no queue. Valid while the value lives.
Queue* find_queue(const Value& value) noexcept;
Queue& as_queue(const Value& value);

}  // namespace hami
