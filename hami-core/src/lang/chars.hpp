// Character classes of the expression language: one table for the parser, the printer and templates.
#pragma once

#include <string_view>

namespace hami {

constexpr bool is_space_byte(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

constexpr bool is_digit_byte(char c) noexcept { return c >= '0' && c <= '9'; }

constexpr bool is_ident_byte(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit_byte(c) || c == '_';
}

constexpr bool is_segment_byte(char c) noexcept { return is_ident_byte(c) || c == '-'; }

// A byte of a bare value outside its {key} templates. This includes the bytes of UTF-8 sequences.
constexpr bool is_bare_byte(char c) noexcept {
  constexpr std::string_view kEnds = " \t\n\r,;()[]{}='\"";
  return c != '\0' && kEnds.find(c) == std::string_view::npos;
}

constexpr bool is_ident(std::string_view word) noexcept {
  if (word.empty() || is_digit_byte(word.front())) return false;
  for (const char c : word) {
    if (!is_ident_byte(c)) return false;
  }
  return true;
}

constexpr bool is_distribution(std::string_view word) noexcept {
  if (word.empty() || !is_ident_byte(word.front()) || word.front() == '_') return false;
  for (const char c : word) {
    if (!is_segment_byte(c) && c != '.') return false;
  }
  return true;
}

// End of the well-formed {key} that opens at text[at], or npos.
constexpr std::size_t template_end(std::string_view text, std::size_t at) noexcept {
  const std::size_t close = text.find('}', at);
  if (close == std::string_view::npos || !is_ident(text.substr(at + 1, close - at - 1))) return std::string_view::npos;
  return close + 1;
}

enum class Templates { kAllowed, kRefused };

// A path (an identifier is a path of one segment). A {key} counts as part of a segment.
constexpr bool is_path(std::string_view name, Templates templates) noexcept {
  bool segment_is_empty = true;
  for (std::size_t i = 0; i < name.size();) {
    if (name[i] == '{' && templates == Templates::kAllowed) {
      i = template_end(name, i);
      if (i == std::string_view::npos) return false;
      segment_is_empty = false;
    } else if (name[i] == '.') {
      if (segment_is_empty) return false;
      segment_is_empty = true;
      ++i;
    } else if (is_segment_byte(name[i])) {
      segment_is_empty = false;
      ++i;
    } else {
      return false;
    }
  }
  return !segment_is_empty;
}

// A name after "dist::": an identifier, which may contain templates.
constexpr bool is_ident_template(std::string_view name) noexcept {
  if (!is_path(name, Templates::kAllowed) || is_digit_byte(name.front())) return false;
  return name.find_first_of(".-") == std::string_view::npos;
}

}  // namespace hami
