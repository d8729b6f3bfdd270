// Makes user text safe to show: UTF-8 decoding, display width, escapes for characters that a terminal hides or executes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hami {

// One code point, or one byte that is not valid UTF-8 (`valid` is false and `bytes` is 1).
struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// `at` must be below text.size(). Overlong forms, surrogates and values above U+10FFFF are not valid.
CodePoint decode_utf8(std::string_view text, std::size_t at) noexcept;

// A code point as shown: unchanged, or as an escape such as \n, \x1b, \u202e. `columns` is its width in the terminal.
struct Cell {
  std::string text;
  std::size_t columns = 0;
};
Cell show_code_point(std::string_view text, std::size_t at);

// `text` on one line, cut with "…" after `max_columns`.
std::string visible(std::string_view text, std::size_t max_columns = 60);

// visible() between double quotes: how messages quote user text.
std::string in_quotes(std::string_view text, std::size_t max_columns = 60);

}  // namespace hami
