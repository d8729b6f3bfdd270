// Reads and prints numbers, durations and sizes, independent of the locale.
#include "lang/units.hpp"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "lang/expression.hpp"

namespace hami {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Largest first: what show_duration and show_bytesize try.
constexpr Unit kDurations[] = {{"h", 3600e3}, {"min", 60e3}, {"s", 1e3}, {"ms", 1}, {"us", 1e-3}};
constexpr Unit kSizes[] = {
    {"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}, {"B", 1}};
constexpr Unit kShortSizes[] = {{"t", 1099511627776.0}, {"g", 1073741824.0}, {"m", 1048576.0}, {"k", 1024.0},
                                {"tb", 1e12},           {"gb", 1e9},         {"mb", 1e6},      {"kb", 1e3}};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit_byte(text[at])) ++at;
  return at;
}

// Length of the decimal number `text` begins with, 0 if it begins with none.
std::size_t number_length(std::string_view text) {
  const std::size_t begin = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  std::size_t end = skip_digits(text, begin);
  std::size_t digits = end - begin;
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction_end = skip_digits(text, end + 1);
    digits += fraction_end - end - 1;
    end = fraction_end;
  }
  if (digits == 0) return 0;
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) ++exponent;
    const std::size_t exponent_end = skip_digits(text, exponent);
    if (exponent_end > exponent) end = exponent_end;
  }
  return end;
}

// In this locale, which takes no memory, numbers have a decimal point. No stream, here or elsewhere in the core: a wheel contains
// the C++ library, and its streams would add 0.2 MB. std::from_chars lacks doubles in older ones.
locale_t plain_locale() { return newlocale(LC_ALL_MASK, "C", nullptr); }

// `number` has the form that number_length takes.
std::optional<double> to_double(std::string_view number) {
  const std::string text(number);
  const double value = strtod_l(text.c_str(), nullptr, plain_locale());
  if (text.empty() || std::isinf(value)) return std::nullopt;
  return value;
}

std::string to_text(double value, int precision) {
  char text[32];  // the longest is -1.2345678901234567e-308
  const locale_t before = uselocale(plain_locale());
  snprintf(text, sizeof text, "%.*g", precision, value);
  uselocale(before);
  return text;
}

std::string shortest(double value) {
  for (int precision = 6; precision < std::numeric_limits<double>::max_digits10; ++precision) {
    std::string text = to_text(value, precision);
    if (to_double(text) == value) return text;
  }
  return to_text(value, std::numeric_limits<double>::max_digits10);
}

template <std::size_t N>
const Unit* find_unit(const Unit (&units)[N], std::string_view name) {
  for (const Unit& unit : units) {
    if (lower(unit.name) == name) return &unit;
  }
  return nullptr;
}

}  // namespace

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && is_space_byte(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space_byte(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> read_number(std::string_view text) {
  text = trim(text);
  const bool negative = !text.empty() && text[0] == '-';
  const std::string word = lower(negative || (!text.empty() && text[0] == '+') ? text.substr(1) : text);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "inf") return negative ? -kInfinity : kInfinity;
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.empty() || number_length(text) != text.size()) return std::nullopt;
  return to_double(text);
}

std::optional<std::int64_t> whole_number(double value) noexcept {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(value >= -kLimit && value < kLimit) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<std::int64_t> read_integer(std::string_view text) {
  text = trim(text);
  const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (text.size() == sign || skip_digits(text, sign) != text.size()) {
    const std::optional<double> number = read_number(text);
    return number ? whole_number(*number) : std::nullopt;
  }
  // Plain digits keep all their 64 bits.
  if (text[0] == '+') text.remove_prefix(1);
  std::int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<bool> read_bool(std::string_view text) {
  const std::string word = lower(trim(text));
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word == "0" || word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::optional<double> read_duration(std::string_view text) {
  text = trim(text);
  const std::size_t length = number_length(text);
  const std::optional<double> number = to_double(text.substr(0, length));
  if (length == 0 || !number) return std::nullopt;
  const std::string name = lower(trim(text.substr(length)));
  const Unit* unit = name.empty() ? find_unit(kDurations, "ms") : find_unit(kDurations, name);
  if (!unit) return std::nullopt;
  const double value = *number * unit->factor;
  if (!(value >= 0) || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> read_bytesize(std::string_view text) {
  text = trim(text);
  const std::size_t length = number_length(text);
  if (length == 0) return std::nullopt;
  const std::string name = lower(trim(text.substr(length)));
  std::optional<std::int64_t> bytes;
  if (name.empty() || name == "b") {
    bytes = read_integer(text.substr(0, length));
  } else {
    const Unit* unit = find_unit(kSizes, name);
    if (!unit) unit = find_unit(kShortSizes, name);
    const std::optional<double> number = to_double(text.substr(0, length));
    if (unit && number) bytes = whole_number(std::nearbyint(*number * unit->factor));
  }
  if (!bytes || *bytes < 0) return std::nullopt;
  return bytes;
}

std::string show_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = shortest(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string show_duration(double milliseconds) {
  for (const Unit& unit : kDurations) {
    const double count = milliseconds / unit.factor;
    if (count < 1 || count != std::floor(count) || count * unit.factor != milliseconds) continue;
    return shortest(count) + std::string(unit.name);
  }
  return shortest(milliseconds) + "ms";
}

std::string show_bytesize(std::int64_t bytes) {
  for (const Unit& unit : kSizes) {
    const auto factor = static_cast<std::int64_t>(unit.factor);
    if (bytes >= factor && bytes % factor == 0) return std::to_string(bytes / factor) + std::string(unit.name);
  }
  return std::to_string(bytes) + "B";
}

}  // namespace hami
