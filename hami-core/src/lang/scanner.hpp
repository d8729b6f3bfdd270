// Scanner: splits an expression into words, quoted texts and punctuation. The grammar is in parse.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lang/expression.hpp"

namespace hami {

// Throws SyntaxError for text over kMaxText, invalid UTF-8, and control bytes other than tab and line breaks.
void check_text(std::string_view text);

class Scanner {
 public:
  // `text` must have passed check_text and outlive the scanner.
  explicit Scanner(std::string_view text) noexcept : text_(text) { skip_space(); }

  bool at_end() const noexcept { return at_ == text_.size(); }
  // The next byte after white space; '\0' at the end.
  char peek() const noexcept { return at_end() ? '\0' : text_[at_]; }
  bool starts_with(std::string_view mark) const noexcept { return text_.substr(at_, mark.size()) == mark; }
  // Consumes `mark` and the white space after it, if it is next.
  bool take(std::string_view mark) noexcept;

  // Letters, digits, "_", "-", "." and {key}: a name, a key or an alias. Empty if none is next.
  Span take_word();
  // A bare or quoted value into `arg`; false if neither is next.
  bool take_value(Arg& arg);
  bool at_quote() const noexcept { return peek() == '\'' || peek() == '"'; }

  std::string_view text(Span span) const noexcept { return text_.substr(span.begin, span.end - span.begin); }
  std::uint32_t position() const noexcept { return static_cast<std::uint32_t>(at_); }
  // End of the last token taken.
  std::uint32_t last_end() const noexcept { return last_end_; }
  void rewind(std::uint32_t position) noexcept { at_ = position; }
  // The next token for messages: a word or one character.
  Span next_thing() const noexcept;

 private:
  void skip_space() noexcept;
  void finish_token() noexcept;
  void take_template();
  void take_quoted(Arg& arg);

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t last_end_ = 0;
};

}  // namespace hami
