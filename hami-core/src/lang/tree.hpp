// The tree of a pipeline expression, with positions. Parsing, printing and template substitution work on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hami {

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

}  // namespace hami
