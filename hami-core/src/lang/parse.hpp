// Parses expressions to trees and prints trees.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lang/tree.hpp"

namespace hami {

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
