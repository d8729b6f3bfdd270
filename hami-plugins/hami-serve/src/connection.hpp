// Connection: reads one request at a time from a socket, and writes its answer.
//
//    idle ──> body ──> running ──> writing ──> idle
//      └───────┴────┬─────┘           └──> closing
//                Python
//
// A request that runs is with the worker of the door before and after its run, if its JSON is long to read or to render.
// A connection that is closing has sent its end, and drops what still comes. The kernel would reset a connection that is
// closed with unread data, and the client could lose the answer by that.
// A request that the native door does not answer goes to Python with its connection, before anything of it was answered. The
// answer 100 to `Expect: 100-continue` may have been sent; Python then gets the request without that header.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer.hpp"
#include "body.hpp"
#include "door.hpp"
#include "head.hpp"
#include "loop.hpp"

namespace hami_serve {

class Connection final : public Peer, private Asker {
 public:
  Connection(Loop& loop, int fd, std::int32_t hops, std::string data);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const noexcept override { return fd_; }
  void handle(std::uint32_t events) override;
  void go_on() override;  // with what was received
  void check_deadline(std::int64_t now) override;
  void end_if_idle() override;
  void cancel() override;
  void close() noexcept override;

 private:
  void completed(std::shared_ptr<Request> request, bool failed) override;
  void answer(std::string bytes) override;
  Peer& peer() noexcept override { return *this; }
  enum class Stage { kIdle, kBody, kRunning, kWriting, kClosing, kGone };

  void receive();
  void read_request(std::string_view data);
  bool ask_for_body(std::size_t expect);
  void begin_body(const Head& head, std::string_view rest, std::shared_ptr<const Table> table, ModelPtr model);
  void read_chunks(std::string_view data);
  void start();
  void read_aside();
  void run(std::shared_ptr<Request> request);
  void leave_to_python(std::shared_ptr<Request> request);
  void render_aside(std::shared_ptr<Request> request, std::int64_t cost);
  void rendered(std::shared_ptr<Request> request, std::optional<Answer> answer);
  void write_for_pages(Answer answer);
  void write(Answer answer);
  void write_some();
  void answered();
  void expect_request();
  void reject(const std::string& text);
  void forget_request() noexcept;
  bool record(Request& request);
  void end_entry() noexcept;
  void end();
  void drop();
  void leave() noexcept;
  bool has_more() const noexcept;
  void hand_over(std::string_view rest);
  void watch(std::uint32_t events);
  void recharge(std::int64_t bytes) noexcept;

  Loop& loop_;
  int fd_;
  std::int32_t hops_;
  Stage stage_ = Stage::kIdle;
  std::uint32_t events_ = 0;
  std::int64_t deadline_ = 0;  // ns; 0: none
  std::string held_;           // received, and not read yet

  std::string head_text_;  // of the request that is read, for Python
  Head head_;
  std::shared_ptr<const Table> table_;
  ModelPtr model_;
  std::shared_ptr<Body> body_;
  std::size_t body_size_ = 0;     // bytes that have come
  std::size_t chunk_left_ = 0;    // bytes of the present chunk
  std::int64_t body_begun_ = 0;   // ns
  std::int64_t charged_ = 0;      // bytes
  std::unique_ptr<Entry> entry_;  // null: the log does not have this request, or Python writes its line

  Request* request_ = nullptr;
  bool is_in_python_ = false;  // its answer is
  bool has_left_ = false;      // the client sends no more
  bool is_last_ = false;       // the connection ends after the present answer
  std::string for_pages_;      // lines of the head of the answer

  Answer answer_;
  std::size_t piece_ = 0;   // of the answer, from which the rest is still to be written
  std::size_t offset_ = 0;  // in that piece
  std::size_t taken_ = 0;   // bytes since the deadline was set
};

}  // namespace hami_serve
