// Pieces of JSON, as Python's json module writes them.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace hami_serve {

template <class Integer>
void add_integer(std::string& json, Integer number) {
  char digits[24];
  json.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void add_float(std::string& json, double number);  // finite; the shortest decimal that reads as the same number
void add_string(std::string& json, std::string_view text);  // UTF-8, which stays as it is

}  // namespace hami_serve
