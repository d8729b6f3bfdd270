// JsonWriter: writes one JSON document.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace hami {

class JsonWriter {
 public:
  template <class Write>
  void object(const Write& write) {
    enclose('{', '}', write);
  }
  template <class Write>
  void array(const Write& write) {
    enclose('[', ']', write);
  }
  // Before each value of an object.
  void key(std::string_view name) {
    separate();
    quote(name);
    text_ += ':';
    follows_ = false;
  }
  void value(std::uint64_t number) { raw(std::to_string(number)); }
  void value(std::int64_t number) { raw(std::to_string(number)); }
  void value(int number) { raw(std::to_string(number)); }
  void value(bool given) { raw(given ? "true" : "false"); }
  void value(double number) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", number);
    raw(std::isfinite(number) ? digits : "null");
  }
  void value(std::string_view text) {
    separate();
    quote(text);
  }
  void null() { raw("null"); }
  // A document that was written before.
  void raw(std::string_view document) {
    separate();
    text_ += document;
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  template <class Write>
  void enclose(char first, char last, const Write& write) {
    separate();
    text_ += first;
    follows_ = false;
    write();
    text_ += last;
    follows_ = true;
  }
  void separate() {
    if (std::exchange(follows_, true)) text_ += ',';
  }
  void quote(std::string_view text) {
    text_ += '"';
    for (const char letter : text) {
      if (letter == '"' || letter == '\\') text_ += '\\';
      if (static_cast<unsigned char>(letter) >= 0x20) {
        text_ += letter;
        continue;
      }
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(letter));
      text_ += escape;
    }
    text_ += '"';
  }

  std::string text_;
  bool follows_ = false;  // there is a value before this place
};

}  // namespace hami
