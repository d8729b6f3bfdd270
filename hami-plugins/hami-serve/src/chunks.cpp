// Reads the sizes of chunks; llhttp reads the lines that few clients send.
#include "chunks.hpp"

#include <llhttp.h>

#include <algorithm>
#include <charconv>

#include "head.hpp"

namespace hami_serve {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::size_t kMaxSizeDigits = 15;  // of a size, which then is far from the largest number
constexpr std::size_t kMaxLine = 1 << 12;   // bytes of a size and its extensions, as in Python

const llhttp_settings_t& settings_of_chunks() noexcept {
  static const llhttp_settings_t made = [] {
    llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_chunk_header = [](llhttp_t* parser) { return parser->content_length > 0 ? int{HPE_PAUSED} : 0; };
    settings.on_message_complete = [](llhttp_t*) { return int{HPE_PAUSED}; };
    return settings;
  }();
  return made;
}

// Reads a line of a chunk with extensions, or of the last one, with the trailers behind it.
ChunkLine read_with_llhttp(std::string_view data) noexcept {
  using Kind = ChunkLine::Kind;
  constexpr std::string_view kHead = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  if (std::min(data.find('\n'), data.size()) >= kMaxLine) return {};
  llhttp_t parser;
  llhttp_init(&parser, HTTP_REQUEST, &settings_of_chunks());
  llhttp_execute(&parser, kHead.data(), kHead.size());
  const auto flags = parser.flags;
  const llhttp_errno_t ended = llhttp_execute(&parser, data.data(), std::min(data.size(), kMaxHead));
  if (ended == HPE_OK && data.size() < kMaxHead) return {Kind::kIncomplete};
  if (ended != HPE_PAUSED || (parser.flags | F_TRAILING) != (flags | F_TRAILING))
    return {};  // trailers that llhttp obeys
  return {Kind::kRead, parser.content_length, static_cast<std::size_t>(llhttp_get_error_pos(&parser) - data.data())};
}

// Reads a line without extensions and trailers.
ChunkLine read_plain(std::string_view data) noexcept {
  using Kind = ChunkLine::Kind;
  std::size_t at = 0;
  const auto skip_end = [&] {  // as far as it has come
    const std::string_view come = data.substr(std::min(at, data.size()), kLineEnd.size());
    at += kLineEnd.size();
    return come == kLineEnd.substr(0, come.size());
  };
  std::size_t chunk = 0;
  const char* const digits = data.data();
  const char* const most = digits + std::min(data.size(), kMaxSizeDigits);
  const char* const end = std::from_chars(digits, most, chunk, 16).ptr;
  at += static_cast<std::size_t>(end - digits);
  if (end == digits && at < data.size()) return {};
  if (!skip_end() || (chunk == 0 && end != digits && !skip_end())) return {};
  if (end == digits || at > data.size()) return {Kind::kIncomplete};
  return {Kind::kRead, chunk, at};
}

}  // namespace

ChunkLine read_chunk_line(std::string_view data, bool is_first) noexcept {
  using Kind = ChunkLine::Kind;
  const std::string_view before = is_first ? std::string_view() : kLineEnd;
  const std::string_view come = data.substr(0, before.size());
  if (come != before.substr(0, come.size())) return {};
  if (come.size() < before.size()) return {Kind::kIncomplete};
  data.remove_prefix(before.size());
  ChunkLine line = read_plain(data);
  if (line.kind == Kind::kUnusual) line = read_with_llhttp(data);
  line.size += before.size();
  return line;
}

std::string first_chunk_line(std::size_t chunk) {
  char digits[2 * sizeof chunk];
  const char* const last = std::to_chars(digits, digits + sizeof digits, chunk, 16).ptr;
  std::string line(digits, static_cast<std::size_t>(last - digits));
  return line += kLineEnd;
}

}  // namespace hami_serve
