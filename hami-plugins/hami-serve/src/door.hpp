// Door: the threads of the native door, and what they leave to Python.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "answer.hpp"
#include "journal.hpp"
#include "models.hpp"
#include "queue.hpp"
#include "worker.hpp"

namespace hami_serve {

class Loop;
class Peer;
struct Request;

// A connection that goes on in Python, with what has come of its next request.
struct Handed {
  int fd = -1;
  std::int32_t hops = 0;  // how often it went to Python
  std::string data;
  std::int64_t charged = 0;  // bytes of it, until Python takes it
  std::unique_ptr<Handed> next;
};

// The connection, or the call of gRPC, that waits for a request. Its functions run on the thread of its loop.
class Asker {
 public:
  // It does not wait any more.
  virtual void completed(std::shared_ptr<Request> request, bool failed) = 0;
  virtual void answer(std::string bytes) = 0;  // of Python; "": it could not answer
  virtual Peer& peer() noexcept = 0;

 protected:
  ~Asker() = default;
};

// A request from its start until its answer is rendered. All but `done` is used on the thread of its loop.
struct Request {
  Loop* loop = nullptr;
  Asker* asker = nullptr;  // null: the client has left
  ModelPtr model;
  Inference inference;
  std::int64_t begun = 0;
  std::int64_t timeout = INT64_MAX;  // ns
  hami_submitted* started = nullptr;
  hami::Value error;               // an event that has failed, or None
  Keys keys;                       // after the run
  bool is_lost = false;            // there was no memory for what it returned
  Request* before = nullptr;       // which has completed before
  bool is_usual = true;            // the worker could read it
  bool is_aside = false;           // the worker reads or renders it
  std::int64_t charged = 0;        // bytes, if the client leaves meanwhile; or those that Python gets with it
  std::int64_t charged_aside = 0;  // bytes, by the worker

  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (started) model->caller().table->started_release(started);
  }
};

// A completed request for Python, in JSON: its number, what its answer needs, and addresses that are valid while it exists.
std::string described(std::int64_t number, const Request& request);

int made_event();  // of the kernel, that does not block; throws std::system_error

inline constexpr std::int64_t kSecond = 1'000'000'000;  // ns
inline constexpr std::int64_t kMinRate = 1 << 14;       // bytes per second that bodies of a connection must come with
inline constexpr std::size_t kMinTaken = 1 << 16;       // bytes of answers that a client must take within a time
std::string seconds(std::int64_t nanoseconds);          // in a text

// How long a connection waits for its client, in nanoseconds: those of http_times.py.
struct Times {
  std::int64_t idle = 0;          // for the first byte, and between requests
  std::int64_t body = 0;          // for the next part of a body
  std::int64_t rate_after = 0;    // from which on a body must come with kMinRate
  std::int64_t write = 0;         // for the client to take the next part of an answer
  std::int64_t half_closed = 0;   // for an answer to begin after the end of a client
  std::int64_t last_request = 0;  // for the next request when the server stops
  std::int64_t linger = 0;        // for the end of a client whose connection is closing
  std::int64_t idle_calls = 0;    // for the next call of a connection of gRPC
};

struct Limits {
  std::int64_t max_body = 0;  // bytes of one request
  std::int64_t max_open = 0;  // bytes of all open requests
  bool only_loopback = false;
  std::string authorization;         // the value of the header; "": none is needed
  std::vector<std::string> origins;  // of pages that may use the server; "*": all
  std::string exposed;               // the names of headers that pages may read
  Times times;
};

Limits read_limits(std::string_view json);  // throws std::exception

class Door {
 public:
  // `python_open`: bytes that open requests of Python have, which it changes. Throws std::exception.
  Door(Limits limits, std::size_t loops, const std::int64_t* python_open);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // ---- for Python
  int event() const noexcept { return event_; }  // readable when `take` or `take_unanswered` has something
  // Takes the descriptor, if it does not throw std::bad_alloc.
  void add(int fd, std::int32_t hops, std::string data);
  // Lets one of the loops serve what `make` makes of the descriptor there, which counts as one of `connections`.
  void add(int fd, std::atomic<std::int64_t>& connections, std::function<std::unique_ptr<Peer>(Loop&)> make);
  std::unique_ptr<Handed> take() noexcept;  // null: there is none
  // A request that Python answers: its number, and what it needs, in JSON with addresses; null if there is none. All that is valid
  // until `answer`.
  const char* take_unanswered(std::int64_t& number) noexcept;
  void answer(std::int64_t number, std::string bytes) noexcept;  // "": there is none, and the connection ends
  void publish(std::string_view json);
  std::string statistics();  // since the last call, in JSON
  void drain() noexcept;     // every connection ends after its present or its next request
  void cancel() noexcept;    // all requests that run
  std::int64_t connections() const noexcept { return connections_; }  // from `add` until `take`
  std::int64_t open_bytes() const noexcept { return open_bytes_; }
  Journal& journal() noexcept { return journal_; }  // for loops too
  // Closes connections, cancels requests and waits for the end of their runs; then the journal gets no more entries.
  void stop() noexcept;

  // ---- for its loops
  const Limits& limits() const noexcept { return limits_; }
  Worker& worker() noexcept { return worker_; }
  std::shared_ptr<const Table> table() const;
  bool draining() const noexcept { return draining_.load(std::memory_order_relaxed); }
  void hand_over(std::unique_ptr<Handed> handed) noexcept;
  void leave_to_python(std::shared_ptr<Request> request);
  // `own`: bytes that the same request has. False: the other open requests leave too few.
  bool charge(std::int64_t bytes, std::int64_t own = 0) noexcept;
  void discharge(std::int64_t bytes) noexcept { open_bytes_ -= bytes; }
  void count_connection(int by) noexcept { connections_ += by; }
  void count_answer() noexcept { answers_.fetch_add(1, std::memory_order_relaxed); }
  void count_timeout() noexcept { timeouts_.fetch_add(1, std::memory_order_relaxed); }
  void count_left() noexcept { left_by_clients_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Answered;  // the task that passes on the answer of Python
  struct Left {
    std::shared_ptr<Request> request;
    std::unique_ptr<Answered> task;
    std::string description;  // after `take_unanswered`
  };
  void notify() noexcept;

  const Limits limits_;
  const std::int64_t* const python_open_;
  const int event_;
  std::atomic<bool> draining_{false};
  std::atomic<std::int64_t> connections_{0};
  std::atomic<std::int64_t> open_bytes_{0};
  std::atomic<std::uint64_t> answers_{0};          // with status 200
  std::atomic<std::uint64_t> timeouts_{0};         // with status 408
  std::atomic<std::uint64_t> left_by_clients_{0};  // requests, before they were answered
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_ = std::make_shared<Table>();
  std::vector<ModelPtr> models_;  // which have had requests that are not counted yet
  Queue<Handed> handed_;
  std::map<std::int64_t, Left> left_;  // to Python
  std::int64_t last_number_ = 0;
  std::int64_t last_taken_ = 0;  // by Python, of these numbers
  Journal journal_;
  std::vector<std::unique_ptr<Loop>> loops_;
  Worker worker_;
  std::size_t next_ = 0;
};

}  // namespace hami_serve
