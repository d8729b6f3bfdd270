// Loop: a thread that serves connections with epoll.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "connection.hpp"
#include "door.hpp"

namespace hami_serve {

std::int64_t now_ns() noexcept;

class Loop {
 public:
  explicit Loop(Door& door);
  ~Loop();  // closes the connections and waits for the runs of their requests
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // ---- from any thread
  void post(std::function<void()> task);
  void completed(Request& request) noexcept;  // by the core
  void add(int fd, std::int32_t hops, std::string data);
  void end_idle();
  void cancel();

  // ---- on its thread
  Door& door() const noexcept { return door_; }
  char* received() noexcept { return received_.get(); }
  void watch(Connection& connection, std::uint32_t events);
  void again(Connection& connection);  // after the others
  // Starts a request, which may be complete then. False: it was not started, and does not exist any more.
  bool submit(std::unique_ptr<Request> request);
  // Takes the connection out, closed or not.
  void remove(Connection& connection) noexcept;

  static constexpr std::size_t kReceived = 1 << 16;  // bytes that are read at once

 private:
  void run();
  void run_tasks();
  void run_completed();
  void finish(Request* request);
  void look_at_deadlines();
  static void on_done(void* data, hami_error* error, const hami_dict* keys);

  Door& door_;
  const int epoll_;
  const int wake_;
  const std::unique_ptr<char[]> received_ = std::make_unique<char[]>(kReceived);
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> removed_;  // until the end of the events of this round
  std::vector<Connection*> again_;
  std::unordered_map<Request*, std::shared_ptr<Request>> running_;
  bool stopping_ = false;

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::vector<Request*> completed_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace hami_serve
