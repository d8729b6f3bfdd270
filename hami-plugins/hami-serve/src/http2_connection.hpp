// Http2Connection: a connection of HTTP/2, whose streams are calls of gRPC. nghttp2 reads and writes its frames.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "grpc.hpp"
#include "grpc_call.hpp"
#include "loop.hpp"

namespace hami_serve {

class Http2Connection final : public Peer {
 public:
  Http2Connection(Loop& loop, int fd, Grpc& grpc);
  ~Http2Connection() override;
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  int fd() const noexcept override { return fd_; }
  void handle(std::uint32_t events) override;
  void go_on() override;  // writes what there is
  void check_deadline(std::int64_t now) override;
  void end_if_idle() override;  // says that the connection ends
  void cancel() override;
  void close() noexcept override;

  // ---- for its calls
  Loop& loop() const noexcept { return loop_; }
  Grpc& grpc() const noexcept { return grpc_; }
  std::size_t calls() const noexcept { return calls_.size(); }
  bool takes_data() const noexcept;  // what waits for Python or for the client does not stop it
  void look_at(std::int64_t moment);
  void consume(const Call& call, std::size_t size);  // data that the call needs no more
  void begin_answer(Call& call);
  void go_on_with(Call& call);              // it has more to send, or has finished
  void answer_without_message(Call& call);  // with its status
  void answer_http(Call& call, const char* status);
  void reset(const Call& call, std::uint32_t code);

 private:
  friend struct Http2Callbacks;
  enum class Stage { kBeginning, kOpen, kDraining, kLastCalls, kEnding, kGone };

  void receive();
  void write_soon();
  bool fill();
  void flush();
  void expect_call();
  void say_last();
  void end();
  Call* call_of(std::int32_t stream) const;

  Loop& loop_;
  Grpc& grpc_;
  int fd_;
  Stage stage_ = Stage::kBeginning;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<std::int32_t, std::unique_ptr<Call>> calls_;
  std::string out_;
  std::size_t sent_ = 0;  // of `out_`
  std::uint32_t events_ = 0;
  bool will_write_ = false;
  bool is_drained_ = false;               // the client has seen that the server stops
  std::int64_t deadline_ = INT64_MAX;     // of the stage
  std::int64_t write_until_ = INT64_MAX;  // for a client to take kMinTaken bytes
  std::size_t taken_ = 0;
  std::int64_t calls_look_ = INT64_MAX;  // the first moment at which a call may have to be looked at
};

}  // namespace hami_serve
