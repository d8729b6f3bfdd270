// Scanner: words, quoted texts and punctuation of an expression.
#include "lang/scanner.hpp"

#include "lang/expression.hpp"
#include "value/api.hpp"

namespace hami {
namespace {

Span span_of(std::size_t begin, std::size_t end) noexcept {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

std::string hex_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return {'0', 'x', "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
}

}  // namespace

void check_text(std::string_view text) {
  if (text.size() > kMaxText) {
    throw SyntaxError({0, 1}, "the expression is longer than 1 MiB",
                      "it has " + std::to_string(text.size()) + " bytes");
  }
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c >= 0x20 && c < 0x7F) {
      ++at;
      continue;
    }
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid) {
      throw SyntaxError(span_of(at, at + 1), "byte " + hex_byte(c) + " is not UTF-8", "expressions are UTF-8 text");
    }
    if ((point.value < 0x20 && !is_space_byte(c)) || point.value == 0x7F) {
      throw SyntaxError(span_of(at, at + 1), "unexpected control byte " + hex_byte(c),
                        "the only control bytes in an expression are tabs and line breaks");
    }
    at += point.bytes;
  }
}

void Scanner::skip_space() noexcept {
  while (at_ < text_.size() && is_space_byte(text_[at_])) ++at_;
}

void Scanner::finish_token() noexcept {
  last_end_ = position();
  skip_space();
}

bool Scanner::take(std::string_view mark) noexcept {
  if (!starts_with(mark)) return false;
  at_ += mark.size();
  finish_token();
  return true;
}

Span Scanner::take_word() {
  const std::size_t begin = at_;
  while (at_ < text_.size()) {
    if (is_segment_byte(text_[at_]) || text_[at_] == '.') {
      ++at_;
    } else if (text_[at_] == '{') {
      take_template();
    } else {
      break;
    }
  }
  const Span word = span_of(begin, at_);
  if (begin != at_) finish_token();
  return word;
}

bool Scanner::take_value(Arg& arg) {
  if (at_quote()) {
    take_quoted(arg);
    return true;
  }
  const std::size_t begin = at_;
  while (at_ < text_.size()) {
    if (is_bare_byte(text_[at_])) {
      ++at_;
    } else if (text_[at_] == '{') {
      take_template();
    } else {
      break;
    }
  }
  if (begin == at_) return false;
  arg.value_span = span_of(begin, at_);
  arg.value = text(arg.value_span);
  arg.quoted = false;
  finish_token();
  return true;
}

void Scanner::take_template() {
  const std::size_t open = at_;
  std::size_t end = open + 1;
  while (end < text_.size() && is_bare_byte(text_[end])) ++end;
  if (end == text_.size() || text_[end] != '}') {
    throw SyntaxError(span_of(open, open + 1), "\"{\" is never closed",
                      "a template is {key}, for example {node_name}; other braces need quotes");
  }
  const std::string_view key = text_.substr(open + 1, end - open - 1);
  if (!is_ident(key)) {
    throw SyntaxError(span_of(open, end + 1),
                      in_quotes(text_.substr(open, end + 1 - open)) + " is not a valid template",
                      "a key is letters, digits and \"_\" and does not start with a digit");
  }
  at_ = end + 1;
}

void Scanner::take_quoted(Arg& arg) {
  const std::size_t begin = at_;
  const char quote = text_[at_++];
  arg.value.clear();
  for (;;) {
    const std::size_t special = text_.find_first_of(quote == '\'' ? "'\\" : "\"\\", at_);
    if (special == std::string_view::npos || (text_[special] == '\\' && special + 1 == text_.size())) {
      throw SyntaxError(span_of(begin, begin + 1), std::string("quote ") + quote + " is never closed",
                        std::string("expected ") + quote + " before the end of the text");
    }
    arg.value.append(text_, at_, special - at_);
    at_ = special + 1;
    if (text_[special] == quote) break;
    switch (text_[at_]) {
      case '\\':
      case '\'':
      case '"': arg.value += text_[at_]; break;
      case 'n': arg.value += '\n'; break;
      case 't': arg.value += '\t'; break;
      case 'r': arg.value += '\r'; break;
      default: {
        const Span escape = span_of(special, at_ + decode_utf8(text_, at_).bytes);
        throw SyntaxError(escape, "unknown escape " + in_quotes(text(escape)), R"(known are \\ \' \" \n \t \r)");
      }
    }
    ++at_;
  }
  arg.value_span = span_of(begin, at_);
  arg.quoted = true;
  finish_token();
}

Span Scanner::next_thing() const noexcept {
  if (at_end()) return span_of(last_end_, last_end_);
  std::size_t end = at_;
  while (end < text_.size() && (is_segment_byte(text_[end]) || text_[end] == '.')) ++end;
  if (end == at_) end += decode_utf8(text_, at_).bytes;
  return span_of(at_, end);
}

}  // namespace hami
