// Reads heads with llhttp.
#include "head.hpp"

#include <llhttp.h>
#include <strings.h>

#include <charconv>
#include <cstring>

namespace hami_serve {
namespace {

constexpr std::string_view kEnd = "\r\n\r\n";
constexpr std::size_t kMaxDigits = 19;  // of a number

bool equals(std::string_view given, std::string_view lower) noexcept {
  return given.size() == lower.size() && strncasecmp(given.data(), lower.data(), lower.size()) == 0;
}

bool starts_with(std::string_view given, std::string_view lower) noexcept {
  return given.size() >= lower.size() && equals(given.substr(0, lower.size()), lower);
}

std::optional<std::size_t> number_of(std::string_view text) noexcept {
  std::size_t number = 0;
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Reader {
  llhttp_t parser;
  Head head;
  std::string_view name;
  std::string_view value;
  int hosts = 0;
  int ids = 0;
  int connections = 0;   // headers of this name
  int codings = 0;       // as above
  bool is_plain = true;  // it has nothing that the door in Python must answer
  bool is_complete = false;

  void add_header() {
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    if (equals(name, "host")) {
      is_plain = is_plain && ++hosts == 1;
      head.host = value;
    } else if (equals(name, "content-type")) {
      head.is_image = starts_with(value, "image/");
      head.is_text = starts_with(value, "text/");
    } else if (equals(name, "inference-header-content-length")) {
      is_plain = is_plain && !head.json_length && (head.json_length = number_of(value));
    } else if (equals(name, "authorization")) {
      is_plain = is_plain && head.authorization.empty();
      head.authorization = value;
    } else if (equals(name, "origin")) {
      is_plain = is_plain && head.origin.empty();
      head.from_page = true;
      head.origin = value;
    } else if (equals(name, "x-request-id")) {
      if (ids++ == 0) head.id = value;
    } else if (starts_with(name, "sec-fetch-")) {
      head.from_page = true;
    } else if (equals(name, "connection")) {
      head.is_last = equals(value, "close");
      is_plain = is_plain && ++connections == 1 && (head.is_last || equals(value, "keep-alive"));
    } else if (equals(name, "transfer-encoding")) {
      is_plain = is_plain && !head.is_chunked && equals(value, "chunked");
      head.is_chunked = true;
    } else if (equals(name, "content-encoding")) {
      is_plain = is_plain && ++codings == 1 && read_coding();
    } else if (equals(name, "expect")) {
      is_plain = is_plain && head.expect.empty() && equals(value, "100-continue");
      head.expect = value;
    } else if (equals(name, "upgrade") || equals(name, "trailer")) {
      is_plain = false;
    }
    for (std::size_t i = 0; i < kTraceHeaders.size(); ++i)
      if (equals(name, kTraceHeaders[i])) head.trace[i] = value;
    name = value = {};
  }

  // False: the door in Python rejects the coding, or reads a list of them.
  bool read_coding() noexcept {
    if (equals(value, "gzip") || equals(value, "x-gzip"))
      head.coding = Coding::kGzip;
    else if (equals(value, "deflate"))
      head.coding = Coding::kDeflate;
    else
      return equals(value, "identity");
    return true;
  }

  // Spans of one header are adjacent, as the head is parsed in one piece.
  void extend(std::string_view& text, const char* at, std::size_t size) noexcept {
    if (text.empty())
      text = {at, size};
    else if (text.data() + text.size() == at)
      text = {text.data(), text.size() + size};
    else
      is_plain = false;
  }
};

Reader& of(llhttp_t* parser) noexcept { return *static_cast<Reader*>(parser->data); }

const llhttp_settings_t& settings() {
  static const llhttp_settings_t made = [] {
    llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_url = [](llhttp_t* parser, const char* at, std::size_t size) {
      of(parser).extend(of(parser).head.path, at, size);
      return 0;
    };
    settings.on_header_field = [](llhttp_t* parser, const char* at, std::size_t size) {
      of(parser).extend(of(parser).name, at, size);
      return 0;
    };
    settings.on_header_value = [](llhttp_t* parser, const char* at, std::size_t size) {
      of(parser).extend(of(parser).value, at, size);
      return 0;
    };
    settings.on_header_value_complete = [](llhttp_t* parser) {
      of(parser).add_header();
      return 0;
    };
    settings.on_headers_complete = [](llhttp_t* parser) {
      of(parser).is_complete = true;
      return 0;
    };
    return settings;
  }();
  return made;
}

}  // namespace

std::optional<Head> read_head(std::string_view data) {
  const std::size_t end = data.substr(0, kMaxHead).find(kEnd);
  if (end == std::string_view::npos) return std::nullopt;
  Reader reader;
  llhttp_init(&reader.parser, HTTP_REQUEST, &settings());
  reader.parser.data = &reader;
  reader.head.size = end + kEnd.size();
  const llhttp_errno_t failed = llhttp_execute(&reader.parser, data.data(), reader.head.size);
  const llhttp_t& parser = reader.parser;
  if (failed != HPE_OK || !reader.is_complete || !reader.is_plain || parser.upgrade || reader.hosts != 1)
    return std::nullopt;
  if (parser.http_major != 1 || parser.http_minor != 1) return std::nullopt;
  if (parser.method != HTTP_GET && parser.method != HTTP_POST) return std::nullopt;
  reader.head.is_post = parser.method == HTTP_POST;
  reader.head.length = parser.content_length;
  return reader.head;
}

}  // namespace hami_serve
