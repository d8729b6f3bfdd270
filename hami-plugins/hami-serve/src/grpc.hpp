// Grpc: what the calls of gRPC have together, and what they leave to Python.
//
// A call that Python answers has a number. Python gets its events in order, asks for each message that it wants, and gives answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "body.hpp"
#include "door.hpp"
#include "queue.hpp"

namespace hami_serve {

class Call;

enum GrpcStatus : std::int32_t {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

// In the order of `_Event` in native_grpc.py.
enum class GrpcEventKind : std::int32_t {
  kBegun = 1,   // `text`: method, metadata and time, in JSON
  kMessage,     // `body`
  kCompressed,  // the same, as the metadata say
  kEnded,       // the client sends no more messages
  kWritten,     // an answer was taken
  kGone,        // the call has ended
  kCompleted,   // a request whose answer Python renders: `text`, as `described` has it
  kRejected,    // without a number: `text` is in JSON
};

struct GrpcEvent {
  std::int64_t number = 0;
  GrpcEventKind kind = GrpcEventKind::kGone;
  std::string text;
  std::shared_ptr<Body> body;
  std::int64_t charged = 0;  // bytes, for the body
  std::unique_ptr<GrpcEvent> next;
};

// Throws std::bad_alloc; pushing the event does not.
inline std::unique_ptr<GrpcEvent> event_of(std::int64_t number, GrpcEventKind kind, std::string text = {}) {
  auto event = std::make_unique<GrpcEvent>();
  event->number = number;
  event->kind = kind;
  event->text = std::move(text);
  return event;
}

// What Python says, and when.
struct GrpcTexts {
  std::string no_token;
  std::string no_message;
  std::string stopping;
};

class Grpc {
 public:
  // Throws std::exception.
  Grpc(Door& door, GrpcTexts texts, std::size_t max_answer);
  ~Grpc();  // after the door has ended
  Grpc(const Grpc&) = delete;
  Grpc& operator=(const Grpc&) = delete;

  // ---- for Python
  int event() const noexcept { return event_; }             // readable when `take` has something
  void add(int fd);                                         // takes the descriptor, if it does not throw std::bad_alloc
  std::unique_ptr<GrpcEvent> take() noexcept;               // null: there is none
  void release(std::unique_ptr<GrpcEvent> event) noexcept;  // Python has its memory
  // Both throw std::bad_alloc.
  void ask(std::int64_t number);                                                     // for the next message
  void write(std::int64_t number, std::string message);                              // an answer
  void finish(std::int64_t number, std::int32_t status, std::string text) noexcept;  // Python forgets the call
  void end(std::int64_t number) noexcept;  // without memory for its next step: its client and Python learn it
  void wait_for_memory(std::int64_t nanoseconds) noexcept { wait_ = nanoseconds; }
  std::uint64_t take_answers() noexcept { return answers_.exchange(0); }
  std::int64_t connections() const noexcept { return connections_; }

  // ---- for connections and calls, on the threads of their loops
  Door& door() const noexcept { return door_; }
  const GrpcTexts& texts() const noexcept { return texts_; }
  std::size_t max_answer() const noexcept { return max_answer_; }  // bytes
  std::int64_t wait() const noexcept { return wait_; }             // nanoseconds, for memory
  // Gives a call a number, and Python its first event. `request`: one that has run, which Python reads.
  std::int64_t leave_to_python(Loop& loop, Call& call, std::unique_ptr<GrpcEvent> first,
                               std::shared_ptr<Request> request = nullptr);
  void forget(std::int64_t number) noexcept;  // the call has ended
  void push(std::unique_ptr<GrpcEvent> event) noexcept;
  void count_answer() noexcept { answers_.fetch_add(1, std::memory_order_relaxed); }
  void count_connection(int by) noexcept { connections_ += by; }

 private:
  struct Finished;  // the task that passes on the end of a call
  struct Left {
    Loop* loop;
    Call* call;                        // used on the thread of the loop; null: it has ended
    std::shared_ptr<Request> request;  // which Python reads
    std::unique_ptr<GrpcEvent> gone;   // null: Python has it
    std::unique_ptr<Finished> end;     // null: Python has finished the call
  };
  template <class Step>
  void post(std::int64_t number, Step step);

  Door& door_;
  const GrpcTexts texts_;
  const std::size_t max_answer_;
  const int event_;
  std::atomic<std::int64_t> wait_{1'000'000'000};
  std::atomic<std::uint64_t> answers_{0};
  std::atomic<std::int64_t> connections_{0};
  std::mutex mutex_;
  Queue<GrpcEvent> events_;
  std::unordered_map<std::int64_t, Left> left_;
  std::int64_t last_number_ = 0;
};

}  // namespace hami_serve
