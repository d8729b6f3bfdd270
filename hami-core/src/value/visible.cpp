// UTF-8 decoding, display width, and escapes.
#include "value/visible.hpp"

#include <algorithm>
#include <iterator>

namespace hami {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Sorted. A subset of Unicode: the scripts and symbols used in file names and messages.
constexpr Range kZeroWidth[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x064B, 0x065F}, {0x093C, 0x093C}, {0x0941, 0x0948},
    {0x094D, 0x094D}, {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
    {0x20D0, 0x20FF}, {0x302A, 0x302D}, {0x3099, 0x309A}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF},
};
constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2E80, 0x303E},   {0x3041, 0x33FF},
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD},
};
// Characters that are invisible or reorder the text around them.
constexpr Range kHidden[] = {
    {0x0080, 0x009F}, {0x00AD, 0x00AD}, {0x061C, 0x061C}, {0x200B, 0x200F},
    {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xE0000, 0xE007F},
};

template <std::size_t N>
bool contains(const Range (&ranges)[N], char32_t code) {
  const Range* end = std::end(ranges);
  const Range* range = std::lower_bound(std::begin(ranges), end, code,
                                        [](const Range& candidate, char32_t value) { return candidate.last < value; });
  return range != end && range->first <= code;
}

std::string hex_escape(char letter, char32_t value, int digits) {
  std::string text{'\\', letter};
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
  return text;
}

Cell escape(std::string text) {
  const std::size_t columns = text.size();
  return {std::move(text), columns};
}

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes > text.size() - at) return {lead, 1, false};
  char32_t value = lead & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xC0u) != 0x80u) return {lead, 1, false};
    value = (value << 6) | (byte(at + i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[bytes] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {lead, 1, false};
  return {value, bytes, true};
}

Cell show_code_point(std::string_view text, std::size_t at) {
  const CodePoint point = decode_utf8(text, at);
  if (!point.valid) return escape(hex_escape('x', point.value, 2));
  switch (point.value) {
    case '\n': return {"\\n", 2};
    case '\r': return {"\\r", 2};
    case '\t': return {"\\t", 2};
    default: break;
  }
  if (point.value < 0x20 || point.value == 0x7F) return escape(hex_escape('x', point.value, 2));
  if (point.value < 0x7F) return {std::string(1, text[at]), 1};
  if (contains(kHidden, point.value)) {
    return escape(point.value > 0xFFFF ? hex_escape('U', point.value, 8) : hex_escape('u', point.value, 4));
  }
  const std::size_t columns = contains(kZeroWidth, point.value) ? 0 : contains(kWide, point.value) ? 2 : 1;
  return {std::string(text.substr(at, point.bytes)), columns};
}

std::string visible(std::string_view text, std::size_t max_columns) {
  std::string shown;
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes) {
    const Cell cell = show_code_point(text, at);
    if (columns + cell.columns > max_columns) return shown + "…";
    shown += cell.text;
    columns += cell.columns;
  }
  return shown;
}

std::string in_quotes(std::string_view text, std::size_t max_columns) { return '"' + visible(text, max_columns) + '"'; }

}  // namespace hami
