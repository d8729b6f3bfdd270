// libFuzzer target: sends any bytes to a connection of gRPC at the native door of hami-serve, as frames of HTTP/2 or as the
// message of a call. Each call ends, nothing is left of it, and an answer has no bytes that the request does not have.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <hami/backend.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "failing_allocations.hpp"
#include "grpc.hpp"
#include "http_model.hpp"
#include "loop.hpp"

HAMI_PLUGIN("fuzz", "0")

namespace {

using hami_serve::GrpcEventKind;

constexpr std::size_t kMaxInput = 1 << 15;  // bytes; the windows of a call and the buffers of a socket take them
constexpr int kSlice = 1'000;  // milliseconds of one poll, which a signal of libFuzzer (-timeout) may interrupt
constexpr int kPatience = 60;  // polls; a loaded machine can pause
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kMaxData = 1 << 14;  // bytes of a frame

bool is_ready(pollfd (&waited)[2]) {
  for (int slice = 0; slice < kPatience; ++slice)
    if (::poll(waited, 2, kSlice) > 0) return true;
  return false;
}

#define REQUIRE(holds) \
  if (!(holds)) std::fprintf(stderr, "%s:%d does not hold: %s\n", __FILE__, __LINE__, #holds), std::abort()

// ---- frames

enum Kind : std::uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4 };
constexpr std::uint8_t kEndStream = 1;
constexpr std::uint8_t kEndHeaders = 4;

std::string frame(Kind kind, std::uint8_t flags, std::uint8_t stream, std::string_view content) {
  const std::size_t size = content.size();
  std::string made{static_cast<char>(size >> 16), static_cast<char>(size >> 8), static_cast<char>(size)};
  made += {static_cast<char>(kind), static_cast<char>(flags), '\0', '\0', '\0', static_cast<char>(stream)};
  return made.append(content);
}

std::string preface() { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, {}); }

void add_header(std::string& block, std::string_view name, std::string_view value) {
  block += '\0';  // a literal without an index
  (block += static_cast<char>(name.size())) += name;
  (block += static_cast<char>(value.size())) += value;
}

std::string call_with(std::string_view message) {
  std::string block;
  add_header(block, ":method", "POST");
  add_header(block, ":scheme", "http");
  add_header(block, ":path", "/inference.GRPCInferenceService/ModelInfer");
  add_header(block, ":authority", "x");
  add_header(block, "content-type", "application/grpc");
  std::string made = preface() + frame(kHeaders, kEndHeaders, 1, block);
  std::string data(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) data += static_cast<char>(message.size() >> shift);
  data += message;
  for (std::size_t at = 0; at < data.size(); at += kMaxData) {
    const bool is_last = data.size() - at <= kMaxData;
    made += frame(kData, is_last ? kEndStream : 0, 1, std::string_view(data).substr(at, kMaxData));
  }
  return made;
}

// What the frames of an answer have.
struct Answer {
  std::string message;
  bool is_complete = false;
};

Answer read_answer(std::string_view frames) {
  Answer answer;
  while (frames.size() >= 9) {
    const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(frames[at])); };
    const std::size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (frames.size() < 9 + size) break;
    if (byte(8) == 1) {  // the stream
      if (byte(3) == kData) answer.message += frames.substr(9, size);
      answer.is_complete = answer.is_complete || byte(3) == kReset || (byte(3) == kHeaders && (byte(4) & kEndStream));
    }
    frames.remove_prefix(9 + size);
  }
  return answer;
}

// ---- the server

struct Server {
  std::unique_ptr<hami_serve::Door> door;
  std::unique_ptr<hami_serve::Grpc> grpc;
  std::size_t calls = 0;  // in Python
};

Server& server() {
  static Server& made = []() -> Server& {
    hami_error* failed = nullptr;
    hami_plugin_v1(hami::fuzz::fill, &failed);
    REQUIRE(!failed);
    static const std::int64_t python_open = 0;
    constexpr std::int64_t minute = 60 * kSecond;
    hami_serve::Limits limits;
    limits.max_body = 1 << 16;
    limits.max_open = 1 << 24;
    limits.times = {minute, minute, minute, minute, minute, minute, minute, minute};
    auto* const opened = new Server();  // its thread ends with the process
    opened->door = std::make_unique<hami_serve::Door>(limits, 1, &python_open);
    const std::string caller = std::to_string(reinterpret_cast<std::uintptr_t>(hami::fuzz::identity()));
    opened->door->publish(
        R"({"ready": true, "logs": true, "traces": false, "reserved": ["priority", "result"], "models": [{"key": 1, "name": "any",
        "version": "1", "paths": ["/v2/models/any/infer"], "inputs": [], "outputs": [], "checks_inputs": false,
        "checks_outputs": false, "takes_text": null, "caller": )" +
        caller + "}]}");
    opened->grpc = std::make_unique<hami_serve::Grpc>(
        *opened->door, hami_serve::GrpcTexts{"no token", "no message", "stopping"}, std::size_t{1} << 30);
    return *opened;
  }();
  return made;
}

// Python answers every second call with its message, and the others with an error.
void answer_for_python() {
  hami_serve::Grpc& grpc = *server().grpc;
  while (std::unique_ptr<hami_serve::GrpcEvent> event = grpc.take()) {
    const std::int64_t number = event->number;
    const bool asks = number % 2 == 0;
    switch (event->kind) {
      case GrpcEventKind::kBegun:
        ++server().calls;
        if (!asks) grpc.finish(number, hami_serve::kInternal, "by Python");
        break;
      case GrpcEventKind::kMessage:
      case GrpcEventKind::kCompressed:
        if (!asks) break;
        grpc.write(number, event->body ? std::string(event->body->data(), event->body->size()) : std::string());
        grpc.ask(number);
        break;
      case GrpcEventKind::kEnded: grpc.finish(number, hami_serve::kOk, {}); break;
      case GrpcEventKind::kCompleted: grpc.finish(number, hami_serve::kInternal, "the result"); break;
      case GrpcEventKind::kGone: grpc.finish(number, hami_serve::kUnavailable, "gone"); break;
      default: break;
    }
    grpc.release(std::move(event));
  }
}

// Sends `input`, and returns the frames that come until the connection ends, or until `is_complete` of them.
template <class IsComplete>
std::string exchange(std::string_view input, bool ends, IsComplete&& is_complete) {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
  const int client = pair[0];
  server().grpc->add(pair[1]);
  std::string found;
  std::size_t sent = 0;
  for (bool open = true; open && !is_complete(found);) {
    const short writes = sent < input.size() ? POLLOUT : 0;
    pollfd waited[2] = {{client, static_cast<short>(POLLIN | writes), 0}, {server().grpc->event(), POLLIN, 0}};
    REQUIRE(is_ready(waited));  // every call ends
    if (waited[1].revents) {
      std::uint64_t count = 0;
      (void)!::read(server().grpc->event(), &count, sizeof count);
      answer_for_python();
    }
    if (waited[0].revents & POLLOUT) {
      const ssize_t size = ::send(client, input.data() + sent, input.size() - sent, MSG_NOSIGNAL);
      if (size < 0) sent = input.size();  // the server has ended the connection
      if (size > 0) sent += static_cast<std::size_t>(size);
      if (sent == input.size() && ends) ::shutdown(client, SHUT_WR);
    }
    if (waited[0].revents & (POLLIN | POLLHUP | POLLERR)) {
      char piece[1 << 14];
      const ssize_t size = ::recv(client, piece, sizeof piece, 0);
      if (size > 0) found.append(piece, static_cast<std::size_t>(size));
      open = size > 0;
    }
  }
  ::close(client);
  for (int slice = 0; server().grpc->connections() > 0 || server().door->open_bytes() != 0;) {
    pollfd event[2] = {{server().grpc->event(), POLLIN, 0}, {-1, 0, 0}};
    slice += ::poll(event, 1, 1) == 0;
    REQUIRE(slice < kPatience * kSlice);  // nothing is left of the connection
    answer_for_python();
  }
  answer_for_python();
  return found;
}

void check_frames(std::string_view frames) {
  exchange(preface().append(frames), true, [](const std::string&) { return false; });
}

// The raw contents of a request that ends with them, has one input, and no flags or BF16, which are converted; "": it is another one.
std::string_view only_raw_input(std::string_view message) {
  constexpr std::uint64_t kInputs = 5 << 3 | 2;
  constexpr std::uint64_t kRaw = 7 << 3 | 2;
  std::size_t inputs = 0;
  std::size_t raws = 0;
  std::string_view raw;
  for (const std::string_view converted : {"BOOL", "BF16"})
    if (message.find(converted) != std::string_view::npos) return {};
  while (!message.empty()) {
    if (message.size() < 2 || (message[0] & 0x87) != 2 || (message[1] & 0x80)) return {};  // short fields are enough
    const auto size = static_cast<std::size_t>(message[1]);
    if (size > message.size() - 2) return {};
    inputs += static_cast<std::uint64_t>(message[0]) == kInputs;
    raws += static_cast<std::uint64_t>(message[0]) == kRaw;
    raw = static_cast<std::uint64_t>(message[0]) == kRaw ? message.substr(2, size) : std::string_view();
    message.remove_prefix(2 + size);
  }
  return inputs == 1 && raws == 1 ? raw : std::string_view();
}

void check_message(std::string_view message) {
  const std::string found =
      exchange(call_with(message), false, [](const std::string& frames) { return read_answer(frames).is_complete; });
  const Answer answer = read_answer(found);
  REQUIRE(answer.is_complete);
  const std::string_view raw = only_raw_input(message);
  if (raw.empty() || answer.message.size() <= 5) return;
  // The answer ends with the bytes of the input.
  REQUIRE(answer.message.size() >= raw.size());
  REQUIRE(std::string_view(answer.message).substr(answer.message.size() - raw.size()) == raw);
}

// Each allocation of the door fails once: its connection ends, and nothing is left of it.
void check_without_memory(std::string_view input) {
  const hami::testing::Spared own;
  const bool is_message = input[0] % 2 == 0;
  const std::string sent = is_message ? call_with(input.substr(1)) : preface().append(input.substr(1));
  const auto is_complete = [&](const std::string& frames) { return is_message && read_answer(frames).is_complete; };
  for (std::size_t number = 1;; ++number) {
    const hami::testing::FailingAllocations failing(hami::testing::Failing::kOne, number);
    exchange(sent, !is_message, is_complete);
    if (!hami::testing::FailingAllocations::failed()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool without_memory = std::getenv("HAMI_FUZZ_WITHOUT_MEMORY") != nullptr;
  if (size == 0 || size > kMaxInput) return 0;
  if (without_memory) {
    check_without_memory({reinterpret_cast<const char*>(data), size});
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (*data % 2 == 0)
    check_message(rest);
  else
    check_frames(rest);
  return 0;
}
