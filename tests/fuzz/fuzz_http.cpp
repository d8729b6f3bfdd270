// libFuzzer target: sends any bytes to a connection of the native door of hami-serve. Each byte belongs to a request that the
// door answers, or goes on to Python; a strict reader of HTTP/1.1 finds as many requests as there are answers.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hami/backend.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "door.hpp"
#include "failing_allocations.hpp"
#include "http_model.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

HAMI_PLUGIN("fuzz", "0")

namespace {

constexpr std::string_view kEnd = "\r\n\r\n";
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::size_t kMaxInput = 1 << 16;  // bytes; the buffers of a socket take them
constexpr std::size_t kMaxLength = 1 << 16;
constexpr int kSlice = 1'000;  // milliseconds of one poll, which a signal of libFuzzer (-timeout) may interrupt
constexpr int kPatience = 60;  // polls; a loaded machine can pause
constexpr char kByPython[] = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

bool is_ready(pollfd (&waited)[2]) {
  for (int slice = 0; slice < kPatience; ++slice)
    if (::poll(waited, 2, kSlice) > 0) return true;
  return false;
}

#define REQUIRE(holds) \
  if (!(holds)) std::fprintf(stderr, "%s:%d does not hold: %s\n", __FILE__, __LINE__, #holds), std::abort()

// ---- a strict reader of messages

struct Message {
  std::string_view start;  // the first line
  std::vector<std::pair<std::string, std::string_view>> headers;
  std::string body;
  std::size_t size = 0;  // bytes of head and body

  std::size_t count(std::string_view name) const {
    return static_cast<std::size_t>(
        std::count_if(headers.begin(), headers.end(), [&](const auto& each) { return each.first == name; }));
  }
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

bool is_token(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) || std::strchr("!#$%&'*+-.^_`|~", letter);
}

// A body in chunks, as far as its lines are strict. Extensions and trailers are dropped.
struct Chunks {
  std::string body;
  std::size_t size = 0;  // bytes of what was read: up to the end of a chunk, or of the body
  bool is_complete = false;
};

// Reads at most `most` chunks.
Chunks read_chunks(std::string_view data, std::size_t most = SIZE_MAX) {
  Chunks found;
  for (std::size_t at = 0; most > 0; --most) {
    const std::size_t end = data.find("\r\n", at);
    if (end == std::string_view::npos) return found;
    const std::string digits(data.substr(at, std::min(data.find(';', at), end) - at));
    const std::size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
    if (digits.empty() || digits.size() - zeros > 16) return found;
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return found;
    const std::size_t chunk = std::stoull(digits, nullptr, 16);
    if (chunk > kMaxLength - found.body.size() || chunk > data.size() - end - 2) return found;
    if (chunk == 0) {
      const std::size_t last = data.find(kEnd, end);  // behind the trailers
      found.is_complete = last != std::string_view::npos;
      if (found.is_complete) found.size = last + kEnd.size();
      return found;
    }
    const bool has_end = data.substr(end + 2 + chunk, 2) == "\r\n";
    found.body.append(data.substr(end + 2, chunk));
    found.size = end + 2 + chunk;
    if (!has_end) return found;
    at = found.size + 2;
  }
  return found;
}

// Reads a message with at most one Content-Length, or chunks; nothing: it has another framing, or is not complete.
std::optional<Message> read_message(std::string_view data) {
  const std::size_t end = data.find(kEnd);
  if (end == std::string_view::npos) return std::nullopt;
  Message message;
  std::string_view lines = data.substr(0, end + 2);
  for (bool first = true; !lines.empty(); first = false) {
    const std::size_t length = lines.find("\r\n");
    const std::string_view line = lines.substr(0, length);
    lines.remove_prefix(length + 2);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) return std::nullopt;
    if (first) {
      message.start = line;
      continue;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return std::nullopt;
    if (!std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon), is_token)) return std::nullopt;
    std::string name(line.substr(0, colon));
    for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    message.headers.emplace_back(std::move(name), value);
  }
  std::size_t length = 0;
  if (message.count("transfer-encoding") + message.count("content-length") > 1) return std::nullopt;
  if (message.count("transfer-encoding") == 1) {
    Chunks chunks = read_chunks(data.substr(end + kEnd.size()));
    if (!chunks.is_complete) return std::nullopt;
    message.body = std::move(chunks.body);
    message.size = end + kEnd.size() + chunks.size;
    return message;
  }
  if (message.count("content-length") == 1) {
    const std::string_view given = message.header("content-length");
    if (given.empty()) return std::nullopt;
    for (const char digit : given) {
      if (digit < '0' || digit > '9' || length > kMaxInput) return std::nullopt;
      length = 10 * length + static_cast<std::size_t>(digit - '0');
    }
  }
  message.size = end + kEnd.size() + length;
  if (message.size > data.size()) return std::nullopt;
  message.body = data.substr(end + kEnd.size(), length);
  return message;
}

// ---- the server

hami_serve::Door& door() {
  static hami_serve::Door& made = []() -> hami_serve::Door& {
    hami_error* failed = nullptr;
    hami_plugin_v1(hami::fuzz::fill, &failed);
    REQUIRE(!failed);
    static const std::int64_t python_open = 0;
    constexpr std::int64_t minute = 60'000'000'000;
    hami_serve::Limits limits;
    limits.max_body = kMaxLength;
    limits.max_open = 1 << 24;
    limits.times = {minute, minute, minute, minute, minute, minute, minute, minute};
    auto* const opened = new hami_serve::Door(limits, 1, &python_open);  // its thread ends with the process
    const std::string caller = std::to_string(reinterpret_cast<std::uintptr_t>(hami::fuzz::identity()));
    opened->publish(
        R"({"ready": true, "logs": true, "traces": false, "reserved": ["priority", "result"], "models": [{"key": 1, "name": "any",
      "version": "1", "paths": ["/v2/models/any/infer"], "inputs": [], "outputs": [], "checks_inputs": false,
      "checks_outputs": false, "takes_text": null, "caller": )" +
        caller + "}]}");
    return *opened;
  }();
  return made;
}

// Appends what can be read now; false: the stream has ended.
bool read_some(int fd, std::string& text) {
  char piece[1 << 14];
  const ssize_t size = ::recv(fd, piece, sizeof piece, 0);
  if (size > 0) text.append(piece, static_cast<std::size_t>(size));
  return size > 0;
}

struct Outcome {
  std::string answers;
  std::optional<std::string> left;  // what Python gets; nothing: it gets no connection
};

void answer_for_python() {
  for (std::int64_t number = 0; door().take_unanswered(number);) door().answer(number, kByPython);
}

Outcome exchange(std::string_view input) {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  const int client = pair[0];
  const std::size_t first = input.empty() ? 0 : input.size() * static_cast<unsigned char>(input.back()) / 256;
  const std::size_t second = first + (input.size() - first) / 2;
  REQUIRE(::send(client, input.data() + first, second - first, 0) == static_cast<ssize_t>(second - first));
  door().add(pair[1], 0, std::string(input.substr(0, first)));
  // The door may have closed the connection.
  (void)!::send(client, input.data() + second, input.size() - second, MSG_NOSIGNAL);
  ::shutdown(client, SHUT_WR);
  Outcome outcome;
  pollfd waited[2] = {{client, POLLIN, 0}, {door().event(), POLLIN, 0}};
  for (bool open = true; open;) {
    REQUIRE(is_ready(waited));  // every request ends
    if (waited[1].revents) {
      std::uint64_t count = 0;
      (void)!::read(door().event(), &count, sizeof count);
      while (const std::unique_ptr<hami_serve::Handed> handed = door().take()) {
        outcome.left = handed->data;
        while (read_some(handed->fd, *outcome.left)) {
        }
        ::close(handed->fd);
      }
      answer_for_python();
    }
    if (waited[0].revents) open = read_some(client, outcome.answers);
  }
  ::close(client);
  return outcome;
}

// Whether Python got a request with these chunks as one.
bool is_left(std::string_view given, std::string_view sent, std::size_t head, const Chunks& chunks) {
  char line[32] = "";
  if (!chunks.body.empty()) std::snprintf(line, sizeof line, "%zx\r\n", chunks.body.size());
  const std::string_view end = chunks.body.empty() ? "0\r\n\r\n" : "\r\n0\r\n\r\n";
  std::string expected(sent.substr(0, head));
  (expected += line) += chunks.body;
  if (chunks.is_complete) expected += end;
  return given == expected.append(sent.substr(head + chunks.size));
}

// What Python gets of a request: its bytes, or those of its first chunks, before a line that native code does not read, as one.
bool is_left(std::string_view given, std::string_view sent) {
  if (given == sent) return true;
  if (sent.find(kEnd) == std::string_view::npos) return false;
  const std::size_t head = sent.find(kEnd) + kEnd.size();
  std::size_t before = SIZE_MAX;
  for (std::size_t most = 0;; ++most) {
    const Chunks chunks = read_chunks(sent.substr(head), most);
    if (is_left(given, sent, head, chunks)) return true;
    if (chunks.size == before) return false;
    before = chunks.size;
  }
}

// The request as Python gets it after the answer 100.
std::string without_expect(std::string_view sent) {
  std::string text(sent);
  std::string head = text.substr(0, text.find(kEnd));
  for (char& letter : head) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const std::size_t line = head.find("\r\nexpect:");
  REQUIRE(line != std::string::npos);
  return text.erase(line, text.find("\r\n", line + 2) - line);
}

void check(std::string_view input) {
  const Outcome outcome = exchange(input);
  std::string_view answers = outcome.answers;
  std::string_view requests = input;
  bool is_last = false;
  bool is_asked = false;  // for the body of the next request
  while (!answers.empty()) {
    if (answers.substr(0, kContinue.size()) == kContinue) {
      REQUIRE(!is_asked && !is_last);
      is_asked = true;
      answers.remove_prefix(kContinue.size());
      continue;
    }
    requests.remove_prefix(std::min(requests.find_first_not_of("\r\n"), requests.size()));  // RFC 9112, 2.2
    const std::optional<Message> request = read_message(requests);
    const std::optional<Message> answer = read_message(answers);
    REQUIRE(request && answer && !is_last);
    REQUIRE(request->count("host") == 1 && answer->count("content-length") == 1);
    REQUIRE(!std::exchange(is_asked, false) || request->header("expect").size() == std::strlen("100-continue"));
    REQUIRE(request->start.size() > 9 && request->start.substr(request->start.size() - 9) == " HTTP/1.1");
    is_last = answer->header("connection") == "close";
    if (request->start.substr(0, 4) == "GET ") REQUIRE(request->body.empty());
    const std::string_view before = answer->header("inference-header-content-length");
    // Coded bodies, flags, BF16, and texts with escapes have other bytes in the answer.
    bool is_converted = request->count("content-encoding") > 0;
    for (const char* const each : {"BOOL", "BF16", "\\"})
      is_converted = is_converted || request->body.find(each) != std::string_view::npos;
    if (!before.empty() && !is_converted) {
      const std::size_t json = std::strtoul(std::string(before).c_str(), nullptr, 10);
      const std::string_view tail = std::string_view(answer->body).substr(json);
      // The bytes of this request, and of no other one; a text has its length before it.
      const bool is_text = tail.size() >= 4 && request->body.find(tail.substr(4)) != std::string_view::npos;
      REQUIRE(is_text || request->body.find(tail) != std::string_view::npos);
    }
    requests.remove_prefix(request->size);
    answers.remove_prefix(answer->size);
  }
  // The rest went on to Python, is not complete, or came after the last request. Nothing is lost, and nothing comes twice.
  if (outcome.left) REQUIRE(is_left(*outcome.left, is_asked ? without_expect(requests) : std::string(requests)));
  if (!outcome.left && !is_last) REQUIRE(requests.empty() || !read_message(requests));
}

// Each allocation of the door fails once: its connection ends, and nothing is left of it.
void check_without_memory(std::string_view input) {
  const hami::testing::Spared own;
  for (std::size_t number = 1;; ++number) {
    const hami::testing::FailingAllocations failing(hami::testing::Failing::kOne, number);
    exchange(input);
    for (int slice = 0; door().connections() > 0 || door().open_bytes() != 0; ++slice) {
      REQUIRE(slice < kPatience * kSlice);
      ::poll(nullptr, 0, 1);
      answer_for_python();
    }
    if (!hami::testing::FailingAllocations::failed()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool without_memory = std::getenv("HAMI_FUZZ_WITHOUT_MEMORY") != nullptr;
  if (size <= kMaxInput) (without_memory ? check_without_memory : check)({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Half of the inputs get the length of their first body right again: else nearly none would have a complete request.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  constexpr std::string_view kLength = "Content-Length: ";
  std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = text.find(kEnd);
  const std::size_t at = text.find(kLength);
  if (seed % 2 == 0 || end == std::string::npos || at >= end) return size;
  const std::size_t digits = at + kLength.size();
  std::size_t next = text.find("\nPOST ", end);  // another request
  next = next == std::string::npos ? text.size() : next + 1;
  text.replace(digits, text.find('\r', digits) - digits, std::to_string(next - end - kEnd.size()));
  if (text.size() > max_size) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
