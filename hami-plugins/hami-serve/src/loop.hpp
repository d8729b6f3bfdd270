// Loop: a thread that serves connections with epoll.
//
// Memory may be exhausted at any step. What passes a request on, from thread to thread, needs no memory: it was allocated
// when the request began. A step of a connection that gets none ends the connection, and by that its requests.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "door.hpp"
#include "queue.hpp"

namespace hami_serve {

std::int64_t now_ns() noexcept;

// A connection that a loop serves. These are called on its thread.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int fd() const noexcept = 0;
  virtual void handle(std::uint32_t events) = 0;  // of epoll
  virtual void go_on() = 0;                       // at first, and after `Loop::again`
  virtual void check_deadline(std::int64_t now) = 0;
  virtual void end_if_idle() = 0;
  virtual void cancel() = 0;  // the requests that run
  virtual void close() noexcept = 0;

  std::unique_ptr<Peer> next;  // of those that are removed
};

class Loop {
 public:
  explicit Loop(Door& door);
  ~Loop();  // closes the connections and waits for the runs of their requests
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // ---- from any thread
  void post(std::unique_ptr<Task> task) noexcept;
  void completed(Request& request) noexcept;  // by the core
  void add(std::function<std::unique_ptr<Peer>(Loop&)> make);
  void end_idle() noexcept { order(kEndIdle); }
  void cancel() noexcept { order(kCancel); }

  // ---- on its thread
  Door& door() const noexcept { return door_; }
  char* received() noexcept { return received_.get(); }
  void watch(Peer& connection, std::uint32_t events);
  void again(Peer& connection);       // after the others
  void look_at(std::int64_t moment);  // at deadlines, not later than then
  // Starts a request, which may be complete then. False: it was not started, and does not exist any more.
  bool submit(std::shared_ptr<Request> request);
  // Takes the connection out, closed or not.
  void remove(Peer& connection) noexcept;
  // Runs a step of a connection, which is closed if the step gets no memory.
  template <class Step>
  void guarded(Peer& connection, Step&& step) noexcept {
    try {
      step();
    } catch (const std::bad_alloc&) {
      connection.close();
    }
  }
  // Lets the worker do `work` for a request, which throws nothing, and this thread then `done`, if its client is still there.
  // Throws std::bad_alloc before that.
  template <class Work, class Done>
  void do_aside(const std::shared_ptr<Request>& request, Work work, Done done) {
    auto after = task_of([this, request, done = std::move(done)] {
      request->is_aside = false;
      if (!request->asker) return door_.discharge(request->charged + request->charged_aside);
      guarded(request->asker->peer(), done);
    });
    auto task = task_of([this, work = std::move(work), after = std::move(after)]() mutable {
      work();
      post(std::move(after));
    });
    request->is_aside = true;
    door_.worker().add(std::move(task));
  }

  static constexpr std::size_t kReceived = 1 << 16;  // bytes that are read at once

 private:
  enum Order : unsigned { kStop = 1, kEndIdle = 2, kCancel = 4 };

  void run();
  void order(Order order) noexcept;
  void obey(unsigned orders);
  template <class Step>
  void for_each_connection(Step&& step);
  int until_look() const noexcept;
  void run_tasks();
  void run_completed();
  void finish(Request* request);
  void look_at_deadlines();
  static void on_done(void* data, hami_error* error, const hami_dict* keys);

  Door& door_;
  const int epoll_;
  const int wake_;
  const std::unique_ptr<char[]> received_ = std::make_unique<char[]>(kReceived);
  std::unordered_map<Peer*, std::unique_ptr<Peer>> connections_;
  Queue<Peer> removed_;  // until the end of the events of this round
  std::vector<Peer*> again_;
  std::int64_t look_at_ = 0;  // ns; at deadlines
  std::unordered_map<Request*, std::shared_ptr<Request>> running_;
  bool stopping_ = false;

  std::atomic<unsigned> orders_{0};
  std::mutex mutex_;
  Queue<Task> tasks_;
  Request* completed_ = nullptr;  // the last one, which names that before it
  std::thread thread_;            // the last member: it uses the others
};

}  // namespace hami_serve
