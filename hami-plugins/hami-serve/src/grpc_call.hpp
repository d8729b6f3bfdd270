// Call: one call of gRPC, from its metadata to its status.
//
//    metadata ──> message <──> waits for memory
//       │            ├──> model ──> answer ──> status
//       └────────────┴─────────> Python <──┘
//
// ModelInfer of a native model stays here. Every other call, and what is unusual of it, goes to Python with its messages.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grpc.hpp"
#include "grpc_message.hpp"

namespace hami_serve {

class Http2Connection;

inline constexpr std::uint32_t kMaxMetadata = 1 << 14;  // bytes of a call, as HTTP/2 counts them

class Call final : private Asker {
 public:
  Call(Http2Connection& connection, std::int32_t stream);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::int32_t stream() const noexcept { return stream_; }
  Loop& loop() const noexcept;
  Peer& peer() noexcept override;  // its connection

  // ---- what comes
  // Of metadata or trailers. False: they are so long that reading more would cost too much, as one byte can mean 4 KiB.
  bool add_header(std::string_view name, std::string_view value);
  void begin();  // all headers have come
  void receive(std::string_view data);
  void end_of_data();
  void check_time(std::int64_t now);
  std::int64_t next_look() const noexcept;  // for `check_time`
  std::size_t held() const noexcept { return held_.size(); }
  void cancel();  // the server stops

  // ---- what goes
  std::size_t unsent() const noexcept { return unsent_; }
  bool is_finished() const noexcept { return is_finished_; }
  std::int32_t status() const noexcept { return status_; }
  const std::string& status_text() const noexcept { return status_text_; }
  void send(std::string& out, std::size_t size);  // of `unsent`

  // ---- what Python says
  void ask();
  void write(std::string message);
  void finish(std::int32_t status, std::string text);

 private:
  enum class Stage { kMetadata, kPrefix, kMemory, kMessage, kHeld, kRunning, kDone };

  void completed(std::shared_ptr<Request> request, bool failed) override;
  void answer(std::string) override {}
  bool check_metadata();
  void read_timeout();
  void reject(std::int32_t status, std::string text);
  void take(std::string_view data);
  void begin_message();
  void get_memory();
  void end_message();
  void deliver();
  void read();
  std::unique_ptr<Entry> new_entry() const;
  void read_aside();
  void run(std::optional<GrpcInference> found, std::shared_ptr<Request> request);
  void render(const std::shared_ptr<Request>& request, std::optional<Answer> answer);
  void leave();
  void end_if_no_more();
  void add_answer(Answer answer);
  void end_as_too_large(std::size_t size);
  void expect_to_be_taken();
  std::int64_t next_look_at_message() const noexcept;
  void read_held();
  void check_message(std::int64_t now);
  void discharge_message() noexcept;

  Http2Connection& connection_;
  const std::int32_t stream_;
  Stage stage_ = Stage::kMetadata;

  // metadata
  std::string method_;  // of HTTP
  std::string path_;
  std::string type_;
  std::string authorization_;
  std::string encoding_;
  std::string timeout_;
  std::vector<std::pair<std::string, std::string>> others_;
  std::size_t metadata_size_ = 0;  // bytes
  std::int64_t deadline_ = INT64_MAX;

  // messages of the client
  bool is_infer_ = false;
  bool has_ended_ = false;  // no more data come
  bool is_compressed_ = false;
  std::size_t asked_ = 0;  // messages that Python wants
  std::string held_;       // data that have come and are not read yet: the client may not send more
  char prefix_[5] = {};
  std::size_t prefix_size_ = 0;
  std::size_t size_ = 0;  // of the message
  std::size_t filled_ = 0;
  std::shared_ptr<Body> body_;
  std::int64_t message_charge_ = 0;
  std::int64_t answer_charge_ = 0;
  std::int64_t memory_until_ = 0;
  std::int64_t message_begun_ = 0;
  std::int64_t data_until_ = 0;  // for the next part of the message

  std::int64_t number_ = 0;  // in Python; 0: it is not there
  Request* request_ = nullptr;
  std::unique_ptr<Entry> entry_;  // null: the log does not have this call, or Python writes its line

  // answers
  struct Sending {
    Answer answer;
    std::size_t piece = 0;
    std::size_t offset = 0;
  };
  void allocate(std::string_view first);
  std::list<Sending> answers_;
  std::size_t unsent_ = 0;
  std::size_t taken_ = 0;  // bytes since `answer_until_` was set
  std::int64_t answer_until_ = INT64_MAX;
  bool has_begun_ = false;
  bool is_finished_ = false;
  std::int32_t status_ = 0;
  std::string status_text_;
};

}  // namespace hami_serve
