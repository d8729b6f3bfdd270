// Numbers and strings in JSON.
#include "json.hpp"

#include <cstdio>
#include <cstdlib>

namespace hami_serve {

// In the form of Python's repr.
void add_float(std::string& json, double number) {
  constexpr int kFixedFrom = -4;  // the exponents between these are written without one
  constexpr int kFixedTo = 16;
  char text[32];
  char* const end = std::to_chars(text, text + sizeof text, number, std::chars_format::scientific).ptr;
  const std::string_view shown(text, static_cast<std::size_t>(end - text));
  std::string_view rest = shown;
  if (rest.front() == '-') {
    json += '-';
    rest.remove_prefix(1);
  }
  const std::size_t mark = rest.find('e');
  std::string digits(1, rest[0]);
  if (mark > 2) digits += rest.substr(2, mark - 2);
  int exponent = 0;
  const std::size_t sign = rest[mark + 1] == '+' ? 2 : 1;
  std::from_chars(rest.data() + mark + sign, end, exponent);
  const int point = exponent + 1;  // digits before the decimal point
  const int count = static_cast<int>(digits.size());
  if (point <= kFixedFrom || point > kFixedTo) {
    json += digits[0];
    if (count > 1) (json += '.').append(digits, 1);
    json += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) json += '0';
    add_integer(json, std::abs(exponent));
  } else if (point <= 0) {
    json += "0.";
    json.append(static_cast<std::size_t>(-point), '0') += digits;
  } else if (point >= count) {
    json += digits;
    json.append(static_cast<std::size_t>(point - count), '0') += ".0";
  } else {
    json.append(digits, 0, static_cast<std::size_t>(point)) += '.';
    json.append(digits, static_cast<std::size_t>(point));
  }
}

void add_string(std::string& json, std::string_view text) {
  json += '"';
  for (const char each : text) {
    switch (each) {
      case '"': json += "\\\""; break;
      case '\\': json += "\\\\"; break;
      case '\n': json += "\\n"; break;
      case '\r': json += "\\r"; break;
      case '\t': json += "\\t"; break;
      case '\b': json += "\\b"; break;
      case '\f': json += "\\f"; break;
      default:
        if (static_cast<unsigned char>(each) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(each));
          json += escape;
        } else {
          json += each;
        }
    }
  }
  json += '"';
}

}  // namespace hami_serve
