// Messages about expressions: headline, the text with its place, a caret under the span, a hint.

#include <algorithm>

#include "lang/expression.hpp"
#include "value/api.hpp"

namespace hami {
namespace {

constexpr std::size_t kColumns = 100;          // of the text that is shown
constexpr std::size_t kColumnsAfter = 50;      // kept for what begins at the span, if the line is longer
constexpr std::size_t kMaxBytesAround = 2048;  // enough for any kColumns; bounds the work on a long line

struct Slice {
  std::size_t begin;
  std::size_t end;
};

// The line that holds `at`, without white space around it; a span at a line's end belongs to that line.
Slice line_around(std::string_view text, std::size_t at) {
  Slice line{0, std::min(text.find('\n', at), text.size())};
  if (at > 0) {
    const std::size_t before = text.rfind('\n', at - 1);
    if (before != std::string_view::npos) line.begin = before + 1;
  }
  while (line.begin < std::min(at, line.end) && is_space_byte(text[line.begin])) ++line.begin;
  while (line.end > at && is_space_byte(text[line.end - 1])) --line.end;
  return line;
}

bool continues_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

struct PlacedCell {
  Cell cell;
  std::size_t at;
};

struct Excerpt {
  std::string text;
  std::size_t caret_at = 0;
  std::size_t caret_columns = 0;
};

Excerpt cut_out(std::string_view text, Span span) {
  const Slice line = line_around(text, span.begin);
  Slice near = line;
  if (span.begin - line.begin > kMaxBytesAround) near.begin = span.begin - kMaxBytesAround;
  if (line.end > span.begin + kMaxBytesAround) near.end = span.begin + kMaxBytesAround;
  while (near.begin > line.begin && continues_code_point(text[near.begin])) --near.begin;

  std::vector<PlacedCell> cells;
  std::size_t total = 0;
  std::size_t focus = 0;  // the cell the span begins in, or one past the last
  for (std::size_t at = near.begin; at < near.end; at += decode_utf8(text, at).bytes) {
    cells.push_back({show_code_point(text.substr(0, near.end), at), at});
    total += cells.back().cell.columns;
    if (at + decode_utf8(text, at).bytes <= span.begin) focus = cells.size();
  }
  // The window starts with everything from the focus on and grows to both sides while there is room.
  std::size_t first = focus;
  std::size_t last = focus;
  std::size_t columns = 0;
  const auto grow_right = [&](std::size_t limit) {
    while (last < cells.size() && columns + cells[last].cell.columns <= limit) columns += cells[last++].cell.columns;
  };
  const auto grow_left = [&](std::size_t limit) {
    while (first > 0 && columns + cells[first - 1].cell.columns <= limit) columns += cells[--first].cell.columns;
  };
  grow_right(total <= kColumns ? kColumns : kColumnsAfter);
  grow_left(kColumns);
  grow_right(kColumns);

  Excerpt excerpt;
  if (first > 0 || near.begin > line.begin) excerpt.text = "…";
  excerpt.caret_at = excerpt.text.empty() ? 0 : 1;
  for (std::size_t i = first; i < last; ++i) {
    excerpt.text += cells[i].cell.text;
    if (i < focus) excerpt.caret_at += cells[i].cell.columns;
    if (i >= focus && cells[i].at < span.end) excerpt.caret_columns += cells[i].cell.columns;
  }
  if (last < cells.size() || near.end < line.end) excerpt.text += "…";
  excerpt.caret_columns = std::max<std::size_t>(1, excerpt.caret_columns);
  return excerpt;
}

}  // namespace

std::string message_with_caret(const std::string& headline, std::string_view text, Span span, const std::string& where,
                               const std::string& hint) {
  const auto size = static_cast<std::uint32_t>(text.size());
  span.begin = std::min(span.begin, size);
  span.end = std::min(std::max(span.begin, span.end), size);
  const Excerpt excerpt = cut_out(text, span);
  const std::string lead = "  in  ";
  std::string message = headline + "\n" + lead + excerpt.text;
  if (!where.empty()) message += "   (" + where + ")";
  message += "\n" + std::string(lead.size() + excerpt.caret_at, ' ') + std::string(excerpt.caret_columns, '^');
  if (!hint.empty()) message += "\n  " + hint;
  return message;
}

}  // namespace hami
