// Loop: a thread that serves connections with epoll.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "door.hpp"

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
  virtual void cancel() noexcept = 0;  // the requests that run
  virtual void close() noexcept = 0;
};

class Loop {
 public:
  explicit Loop(Door& door);
  ~Loop();  // closes the connections and waits for the runs of their requests
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // ---- from any thread
  void post(std::function<void()> task);
  void completed(Request& request) noexcept;  // by the core
  void add(std::function<std::unique_ptr<Peer>(Loop&)> make);
  void end_idle();
  void cancel();

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

  static constexpr std::size_t kReceived = 1 << 16;  // bytes that are read at once

 private:
  void run();
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
  std::vector<std::unique_ptr<Peer>> removed_;  // until the end of the events of this round
  std::vector<Peer*> again_;
  std::int64_t look_at_ = 0;  // ns; at deadlines
  std::unordered_map<Request*, std::shared_ptr<Request>> running_;
  bool stopping_ = false;

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::vector<Request*> completed_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace hami_serve
