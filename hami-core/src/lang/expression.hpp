// The expression language: its characters, the tree of an expression, and the functions from text to tree and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace hami {

// Character classes of the expression language: one table for the parser, the printer and templates.
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

// `word` is not empty.
constexpr bool is_distribution(std::string_view word) noexcept {
  if (!is_ident_byte(word.front()) || word.front() == '_') return false;
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
      segment_is_empty = i == std::string_view::npos;  // not well-formed: this ends here
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

// The tree of a pipeline expression, with positions. Parsing, printing and template substitution work on it.
// Byte offsets [begin, end) into the text that was parsed.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// One entry of "(…)": `value` or `key=value`. `value` is unescaped; {key} templates are still in it.
struct Arg {
  std::string key;  // empty: positional
  std::string value;
  bool quoted = false;  // {key} inside quotes is plain text
  Span key_span;
  Span value_span;
};

struct Item;

struct Expr {
  std::string distribution;               // "hami-image" of hami-image::ResizeMat, else empty
  std::string name;                       // ident or path; may hold {key} templates
  std::vector<Arg> when;                  // "(…)" before the name: belongs to the enclosing container
  std::vector<Arg> args;                  // "(…)" after the name: parameters
  std::vector<std::vector<Item>> phases;  // empty: no brackets
  Span name_span;                         // distribution included
  Span span;                              // the whole expression
};

// One entry of "[…]": a setting `key=value`, or `[alias:=]expr`.
struct Item {
  std::string alias;  // empty: none
  Span alias_span;
  bool is_setting = false;
  Arg setting;                 // if is_setting
  std::unique_ptr<Expr> expr;  // otherwise
  Span span;

  Item() = default;
  Item(Item&&) noexcept = default;
  Item& operator=(Item&&) noexcept = default;
  Item(const Item& other);
  Item& operator=(const Item& other);
};

// Same tree, positions aside.
bool same_tree(const Expr& a, const Expr& b);

// Parses expressions to trees and prints trees.
inline constexpr std::size_t kMaxDepth = 200;
inline constexpr std::size_t kMaxText = std::size_t{1} << 20;

// A syntax error and its position. Callers that know the text, the node and the file make the full message of it.
struct SyntaxError : std::runtime_error {
  SyntaxError(Span where, const std::string& headline, std::string advice = {})
      : std::runtime_error(headline), span(where), hint(std::move(advice)) {}
  Span span;
  std::string hint;  // one line without a full stop; may be empty
};

// Throws SyntaxError. Never recurses deeper than kMaxDepth, refuses text over kMaxText.
Expr parse(std::string_view text);

// Canonical text: same_tree(parse(print(t)), t) for every tree that parse can make.
std::string print(const Expr& expr);

// `tree` with every {key} in names and bare values replaced by lookup(key). lookup returns null for a missing key:
// SyntaxError. A name that is not valid after the replacement: SyntaxError. Positions stay those of the template.
// Adds every key it used to `used` if that is not null.
Expr substitute(const Expr& tree, const std::function<const std::string*(const std::string& key)>& lookup,
                std::vector<std::string>* used = nullptr);

// The message form of every error about an expression:
//   headline
//     in  text   (where)
//             ^^^^
//     hint
// A long text is cut to the neighbourhood of the span with "…"; control bytes are shown escaped; `where` may be empty,
// `hint` may be empty. A text with line breaks shows the line that holds the start of the span.
std::string message_with_caret(const std::string& headline, std::string_view text, Span span, const std::string& where,
                               const std::string& hint);

}  // namespace hami
