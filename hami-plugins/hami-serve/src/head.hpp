// Head: the head of a request that the native door may answer. Everything else is left to the door in Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hami_serve {

inline constexpr std::size_t kMaxHead = 1 << 14;  // bytes; the door in Python takes longer ones

// By which a client names the parent of a span. In the order of HEADERS in tracing.py.
inline constexpr std::array<std::string_view, 3> kTraceHeaders = {"traceparent", "tracestate", "baggage"};

enum class Coding : std::uint8_t { kNone, kGzip, kDeflate };  // of a body

struct Head {
  bool is_post = false;
  std::string_view path;
  std::size_t size = 0;    // bytes of the head
  std::size_t length = 0;  // bytes of the body; of one in chunks, when it is complete
  bool is_chunked = false;
  Coding coding = Coding::kNone;
  std::optional<std::size_t> json_length;
  std::string_view authorization;
  std::string_view host;
  std::string_view expect;                                   // "100-continue", or ""
  std::string_view id;                                       // of the request, for the log
  std::array<std::string_view, kTraceHeaders.size()> trace;  // the values of those headers
  std::string_view origin;                                   // of the page, "" if the browser does not say it
  bool is_image = false;
  bool is_text = false;
  bool from_page = false;  // a browser may have sent it for a page
  bool is_last = false;    // the client wants the connection to end
};

// Reads a complete head at the beginning of `data`. Nothing: it is not complete, not plain, or not HTTP/1.1. The views are in
// `data`.
std::optional<Head> read_head(std::string_view data);

}  // namespace hami_serve
