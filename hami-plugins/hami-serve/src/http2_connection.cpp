// The frames of a connection.
#include "http2_connection.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace hami_serve {
namespace {

constexpr std::int64_t kBeginTime = 20 * kSecond;  // for a client to say that it speaks HTTP/2
constexpr std::int64_t kDrainTime = 1 * kSecond;   // for a client to see that the server stops
constexpr std::int64_t kEndTime = 1 * kSecond;     // for a client to close a connection that has ended
constexpr std::size_t kMaxOut = 1 << 18;       // bytes that wait for the client; more are not made, and none are read
constexpr std::size_t kMaxWritten = 1 << 20;   // bytes, before other connections come
constexpr std::size_t kKeptOut = 1 << 16;      // bytes of memory that an idle connection keeps
constexpr std::uint32_t kMaxCalls = 1024;      // of a connection, at a time
constexpr std::int32_t kCallWindow = 1 << 18;  // bytes of a call that come before they are read
constexpr std::int32_t kWindow = 1 << 20;      // the same of all calls of a connection
constexpr std::uint64_t kResets = 10'000;      // calls that a client may give up at once,
constexpr std::uint64_t kResetsPerSecond = 1'000;  // and later
constexpr std::uint8_t kDrainPing[8] = {'h', 'a', 'm', 'i', 'l', 'a', 's', 't'};

// Of a function that needs memory: without this, its frame would be missing.
void checked(int result) {
  if (result == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
}

nghttp2_nv header(std::string_view name, std::string_view value) noexcept {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

// A status text in the form of its header.
std::string percent_encoded(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >= ' ' && byte <= '~' && byte != '%') {
      encoded += each;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4];
      encoded += kDigits[byte & 15];
    }
  }
  return encoded;
}

// The headers of a status behind `first`; `texts` keeps what they point to.
std::vector<nghttp2_nv> with_status(std::vector<nghttp2_nv> first, const Call& call, std::string (&texts)[2]) {
  texts[0] = std::to_string(call.status());
  first.push_back(header("grpc-status", texts[0]));
  texts[1] = percent_encoded(call.status_text());
  if (!texts[1].empty()) first.push_back(header("grpc-message", texts[1]));
  return first;
}

const std::vector<nghttp2_nv>& head() {
  static const std::vector<nghttp2_nv> made{header(":status", "200"), header("content-type", "application/grpc"),
                                            header("grpc-accept-encoding", "identity, deflate, gzip")};
  return made;
}

}  // namespace

struct Http2Callbacks {
  static Http2Connection& of(void* user) noexcept { return *static_cast<Http2Connection*>(user); }

  // `kStep` as a callback: nghttp2 is in C, which no exception passes. Without memory, the connection ends.
  template <auto kStep>
  struct Guarded;
  template <class Result, class... Given, Result (*kStep)(Given...)>
  struct Guarded<kStep> {
    static Result call(Given... given) noexcept {
      try {
        return kStep(given...);
      } catch (const std::bad_alloc&) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
      }
    }
  };

  static int begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Http2Connection& connection = of(user);
    const std::int32_t stream = frame->hd.stream_id;
    std::unique_ptr<Call>& call = connection.calls_[stream];
    call = std::make_unique<Call>(connection, stream);
    return nghttp2_session_set_stream_user_data(session, stream, call.get());
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                       const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* user) {
    Call* const call = of(user).call_of(frame->hd.stream_id);
    if (!call || call->add_header({reinterpret_cast<const char*>(name), name_size},
                                  {reinterpret_cast<const char*>(value), value_size}))
      return 0;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // which ends the call
  }

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Connection& connection = of(user);
    if (connection.stage_ == Http2Connection::Stage::kBeginning) {
      connection.stage_ = Http2Connection::Stage::kOpen;
      connection.expect_call();
    }
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK)) {
      if (std::memcmp(frame->ping.opaque_data, kDrainPing, sizeof kDrainPing) == 0) connection.is_drained_ = true;
      return 0;
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    Call* const call = connection.call_of(frame->hd.stream_id);
    if (!call) return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) call->begin();
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) call->end_of_data();
    return 0;
  }

  static int on_data(nghttp2_session* session, std::uint8_t, std::int32_t stream, const std::uint8_t* data,
                     std::size_t size, void* user) {
    if (Call* const call = of(user).call_of(stream))
      call->receive({reinterpret_cast<const char*>(data), size});
    else
      checked(nghttp2_session_consume(session, stream, size));
    return 0;
  }

  static int on_close(nghttp2_session* session, std::int32_t stream, std::uint32_t, void* user) {
    const auto found = of(user).calls_.find(stream);
    if (found == of(user).calls_.end()) return 0;
    checked(nghttp2_session_consume_connection(session, found->second->held()));
    of(user).calls_.erase(found);
    if (of(user).calls_.empty()) of(user).expect_call();
    return 0;
  }

  static int on_sent(nghttp2_session* session, const nghttp2_frame* frame, void*) {
    const std::int32_t stream = frame->hd.stream_id;
    const bool ends = stream != 0 && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
                      (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA);
    if (ends && nghttp2_session_get_stream_remote_close(session, stream) == 0)  // the client need not send the rest
      checked(nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_NO_ERROR));
    return 0;
  }

  static nghttp2_ssize read(nghttp2_session* session, std::int32_t stream, std::uint8_t*, std::size_t size,
                            std::uint32_t* flags, nghttp2_data_source* source, void*) {
    const Call& call = *static_cast<Call*>(source->ptr);
    const std::size_t taken = std::min(call.unsent(), size);
    if (taken == 0 && !call.is_finished()) return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (taken == call.unsent() && call.is_finished()) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      std::string texts[2];
      const std::vector<nghttp2_nv> trailer = with_status({}, call, texts);
      checked(nghttp2_submit_trailer(session, stream, trailer.data(), trailer.size()));
    }
    return static_cast<nghttp2_ssize>(taken);
  }

  static int send_data(nghttp2_session*, nghttp2_frame*, const std::uint8_t* head, std::size_t size,
                       nghttp2_data_source* source, void* user) {
    std::string& out = of(user).out_;
    out.append(reinterpret_cast<const char*>(head), 9);
    static_cast<Call*>(source->ptr)->send(out, size);
    return out.size() - of(user).sent_ < kMaxOut ? 0 : NGHTTP2_ERR_PAUSE;
  }

  static nghttp2_ssize frame_size(nghttp2_session*, std::uint8_t, std::int32_t, std::int32_t window,
                                  std::int32_t stream_window, std::uint32_t most, void*) {
    const auto smaller = static_cast<std::uint32_t>(std::max(1, std::min(window, stream_window)));
    return std::min({smaller, most, static_cast<std::uint32_t>(kMaxOut)});
  }

  static nghttp2_session_callbacks* made() {
    nghttp2_session_callbacks* callbacks = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks)) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Guarded<begin_headers>::call);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, Guarded<on_header>::call);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Guarded<on_frame>::call);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Guarded<on_data>::call);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Guarded<on_close>::call);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Guarded<on_sent>::call);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, Guarded<send_data>::call);
    nghttp2_session_callbacks_set_data_source_read_length_callback2(callbacks, frame_size);
    return callbacks;
  }

  static nghttp2_option* options() {
    nghttp2_option* option = nullptr;
    if (nghttp2_option_new(&option)) throw std::bad_alloc();
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, kResets, kResetsPerSecond);
    nghttp2_option_set_glitch_rate_limit(option, kResets, kResetsPerSecond);
    return option;
  }
};

Http2Connection::Http2Connection(Loop& loop, int fd, Grpc& grpc)
    : loop_(loop), grpc_(grpc), fd_(fd), deadline_(now_ns() + kBeginTime) {
  static nghttp2_session_callbacks* const callbacks = Http2Callbacks::made();
  static nghttp2_option* const options = Http2Callbacks::options();
  if (nghttp2_session_server_new2(&session_, callbacks, this, options)) throw std::bad_alloc();
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxCalls},
                                             {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kCallWindow},
                                             {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxMetadata}};
  if (nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) ||
      nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindow)) {
    nghttp2_session_del(session_);
    throw std::bad_alloc();
  }
}

Http2Connection::~Http2Connection() {
  calls_.clear();
  nghttp2_session_del(session_);
  if (fd_ >= 0) ::close(fd_);
  grpc_.count_connection(-1);
}

Call* Http2Connection::call_of(std::int32_t stream) const {
  return static_cast<Call*>(nghttp2_session_get_stream_user_data(session_, stream));
}

// ---- for the calls

void Http2Connection::look_at(std::int64_t moment) {
  calls_look_ = std::min(calls_look_, moment);
  loop_.look_at(moment);
}

void Http2Connection::consume(const Call& call, std::size_t size) {
  if (size == 0) return;
  checked(nghttp2_session_consume(session_, call.stream(), size));
  write_soon();  // that the client may send more
}

bool Http2Connection::takes_data() const noexcept {
  return (events_ & EPOLLIN) && nghttp2_session_get_local_window_size(session_) > 0;
}

void Http2Connection::begin_answer(Call& call) {
  nghttp2_data_provider2 provider{};
  provider.source.ptr = &call;
  provider.read_callback = Http2Callbacks::Guarded<Http2Callbacks::read>::call;
  checked(nghttp2_submit_response2(session_, call.stream(), head().data(), head().size(), &provider));
  write_soon();
}

void Http2Connection::go_on_with(Call& call) {
  checked(nghttp2_session_resume_data(session_, call.stream()));
  write_soon();
}

void Http2Connection::answer_without_message(Call& call) {
  std::string texts[2];
  const std::vector<nghttp2_nv> headers = with_status(head(), call, texts);
  checked(nghttp2_submit_response2(session_, call.stream(), headers.data(), headers.size(), nullptr));
  write_soon();
}

void Http2Connection::answer_http(Call& call, const char* status) {
  const nghttp2_nv headers[] = {header(":status", status)};
  checked(nghttp2_submit_response2(session_, call.stream(), headers, std::size(headers), nullptr));
  write_soon();
}

void Http2Connection::reset(const Call& call, std::uint32_t code) {
  checked(nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call.stream(), code));
  write_soon();
}

// ---- the socket

void Http2Connection::handle(std::uint32_t events) {
  if (stage_ == Stage::kGone) return;
  if (events & (EPOLLHUP | EPOLLERR)) return close();
  if (events & (EPOLLIN | EPOLLRDHUP)) receive();
  if (stage_ != Stage::kGone && (events & EPOLLOUT)) flush();
}

void Http2Connection::receive() {
  const ssize_t size = ::recv(fd_, loop_.received(), Loop::kReceived, 0);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (size <= 0) return close();
  if (stage_ == Stage::kEnding) return;
  const auto* const data = reinterpret_cast<const std::uint8_t*>(loop_.received());
  const nghttp2_ssize used = nghttp2_session_mem_recv2(session_, data, static_cast<std::size_t>(size));
  if (used < 0) return end();
  if (is_drained_ && stage_ == Stage::kDraining) return say_last();
  write_soon();
}

// Writes after the others have had their events.
void Http2Connection::write_soon() {
  if (!std::exchange(will_write_, true)) loop_.again(*this);
}

void Http2Connection::go_on() {
  will_write_ = false;
  if (stage_ == Stage::kBeginning && loop_.door().draining()) end_if_idle();
  if (stage_ != Stage::kGone) flush();
}

// Makes frames until enough wait for the client. False: the connection is broken.
bool Http2Connection::fill() {
  while (out_.size() - sent_ < kMaxOut) {
    const std::size_t before = out_.size();
    const std::uint8_t* data = nullptr;
    const nghttp2_ssize size = nghttp2_session_mem_send2(session_, &data);
    if (size < 0) return false;
    out_.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    if (out_.size() == before) return true;
  }
  return true;
}

void Http2Connection::flush() {
  for (std::size_t written = 0;;) {
    if (stage_ != Stage::kEnding && !fill()) return close();
    if (sent_ == out_.size()) break;
    if (written >= kMaxWritten) {
      write_soon();
      break;
    }
    const ssize_t size = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (size < 0) return close();
    sent_ += static_cast<std::size_t>(size);
    taken_ += static_cast<std::size_t>(size);
    written += static_cast<std::size_t>(size);
    if (sent_ < std::min(out_.size(), kMaxOut)) continue;
    out_.erase(0, std::exchange(sent_, 0));  // also if there is always more
    if (out_.empty() && out_.capacity() > kKeptOut) out_.shrink_to_fit();
  }
  if (sent_ == out_.size()) {
    write_until_ = INT64_MAX;
    const bool has_ended = stage_ == Stage::kLastCalls && calls_.empty();
    const bool is_broken = !nghttp2_session_want_read(session_) && !nghttp2_session_want_write(session_);
    if (stage_ == Stage::kEnding)
      ::shutdown(fd_, SHUT_WR);
    else if (has_ended || is_broken)
      return end();
  } else if (write_until_ == INT64_MAX) {
    write_until_ = now_ns() + loop_.door().limits().times.write;
    loop_.look_at(write_until_);
    taken_ = 0;
  }
  const std::size_t left = out_.size() - sent_;
  const std::uint32_t events = (left < kMaxOut ? EPOLLIN : 0U) | (left > 0 ? EPOLLOUT : 0U);
  if (std::exchange(events_, events) != events) loop_.watch(*this, events);
}

void Http2Connection::check_deadline(std::int64_t now) {
  if (now >= deadline_) {
    switch (stage_) {
      case Stage::kOpen:
        if (calls_.empty())
          end_if_idle();
        else
          deadline_ = INT64_MAX;  // again from the end of the last call
        break;
      case Stage::kDraining:
        say_last();
        if (stage_ == Stage::kGone) return;
        break;
      default: return close();
    }
  }
  if (now >= write_until_) {
    if (taken_ < kMinTaken) return close();
    taken_ = 0;
    write_until_ = now + loop_.door().limits().times.write;
  }
  if (now >= calls_look_) {
    calls_look_ = INT64_MAX;
    for (const auto& [stream, call] : calls_) call->check_time(now);
    for (const auto& [stream, call] : calls_) calls_look_ = std::min(calls_look_, call->next_look());
  }
  loop_.look_at(std::min({deadline_, write_until_, calls_look_}));  // also if another connection was looked at
}

// ---- the end

// A connection without a call ends in a while, as if the server stopped: gRPC connects again for the next call.
void Http2Connection::expect_call() {
  if (stage_ == Stage::kOpen) deadline_ = now_ns() + loop_.door().limits().times.idle_calls;
}

// A client may have sent calls before it sees that the server stops. They are accepted until it has answered a ping.
void Http2Connection::end_if_idle() {
  if (stage_ != Stage::kBeginning && stage_ != Stage::kOpen) return;
  stage_ = Stage::kDraining;
  deadline_ = now_ns() + kDrainTime;
  checked(nghttp2_submit_shutdown_notice(session_));
  checked(nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kDrainPing));
  write_soon();
}

void Http2Connection::say_last() {
  stage_ = Stage::kLastCalls;
  deadline_ = INT64_MAX;
  checked(nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                                NGHTTP2_NO_ERROR, nullptr, 0));
  flush();  // at once: no call may come between
}

// Closes the connection when the client has all that was sent: closing it at once might reset it.
void Http2Connection::end() {
  if (!fill()) return close();
  stage_ = Stage::kEnding;
  deadline_ = now_ns() + kEndTime;
  calls_.clear();
  flush();
}

void Http2Connection::cancel() {
  for (const auto& [stream, call] : calls_) call->cancel();
}

void Http2Connection::close() noexcept {
  stage_ = Stage::kGone;
  calls_.clear();
  loop_.remove(*this);
}

}  // namespace hami_serve
