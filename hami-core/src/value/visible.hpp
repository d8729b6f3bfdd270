// User text made safe to show: UTF-8 decoding, display width, escapes for what a terminal would hide or obey.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hami {

// One code point, or one byte that is no UTF-8 (then `valid` is false and `bytes` is 1).
struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// `at` must be below text.size(). Overlong forms, surrogates and values above U+10FFFF are not valid.
CodePoint decode_utf8(std::string_view text, std::size_t at) noexcept;

// One code point as it is shown: itself, or an escape such as \n, \x1b, \u202e. Its width in terminal columns is 0, 1
// or 2 for itself, the length of the escape otherwise.
struct Cell {
  std::string text;
  std::size_t columns = 0;
};
Cell show_code_point(std::string_view text, std::size_t at);

// `text` on one line, cut with "…" after `max_columns`.
std::string visible(std::string_view text, std::size_t max_columns = 60);

// visible() between double quotes, as texts of users appear in messages.
std::string in_quotes(std::string_view text, std::size_t max_columns = 60);

}  // namespace hami
