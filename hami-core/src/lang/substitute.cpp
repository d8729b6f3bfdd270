// Replaces the {key} templates of a tree by the parameters of a node.
#include <algorithm>

#include "lang/chars.hpp"
#include "lang/parse.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

class Substitution {
 public:
  Substitution(const std::function<const std::string*(const std::string& key)>& lookup, std::vector<std::string>* used)
      : lookup_(lookup), used_(used) {}

  void in_expr(Expr& expr) {
    in_args(expr.when);
    in_name(expr);
    in_args(expr.args);
    for (std::vector<Item>& phase : expr.phases) {
      for (Item& item : phase) {
        if (item.is_setting) {
          in_arg(item.setting);
        } else {
          in_expr(*item.expr);
        }
      }
    }
  }

 private:
  void in_args(std::vector<Arg>& args) {
    for (Arg& arg : args) in_arg(arg);
  }

  void in_arg(Arg& arg) {
    if (arg.quoted || arg.value.find('{') == std::string::npos) return;
    arg.value = replace(arg.value, arg.value_span.begin);
    arg.quoted = true;  // braces in the value of a parameter are plain text
  }

  void in_name(Expr& expr) {
    if (expr.name.find('{') == std::string::npos) return;
    const std::string given = expr.name;
    // A name has no escapes and is the last part of its span, so offsets in it are offsets in the text.
    expr.name = replace(given, expr.name_span.end - static_cast<std::uint32_t>(given.size()));
    const std::size_t mark = expr.distribution.empty() ? expr.name.find("::") : std::string::npos;
    if (mark != std::string::npos) {
      expr.distribution = expr.name.substr(0, mark);
      expr.name.erase(0, mark + 2);
    }
    const bool is_name = expr.distribution.empty() ? is_path(expr.name, Templates::kRefused)
                                                   : is_distribution(expr.distribution) && is_ident(expr.name);
    if (is_name) return;
    const std::string whole = expr.distribution.empty() ? expr.name : expr.distribution + "::" + expr.name;
    throw SyntaxError(expr.name_span, visible(given) + " becomes " + in_quotes(whole) + ", which is not a valid name",
                      "a value that replaces {key} in a name must be a name or part of one");
  }

  // `begin`: where `text` starts in the whole text.
  std::string replace(const std::string& text, std::uint32_t begin) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t open = std::min(text.find('{', at), text.size());
      out.append(text, at, open - at);
      if (open == text.size()) break;
      const std::size_t end = template_end(text, open);
      if (end == std::string::npos) throw SyntaxError({begin, begin}, "bad template in " + in_quotes(text));
      const std::string key = text.substr(open + 1, end - open - 2);
      const std::string* value = lookup_(key);
      if (!value) {
        const auto span_begin = static_cast<std::uint32_t>(begin + open);
        throw SyntaxError({span_begin, static_cast<std::uint32_t>(begin + end)}, "{" + key + "} has no value",
                          "set " + key + " in the node or in [global]");
      }
      if ((growth_ += value->size()) > kMaxText)
        throw SyntaxError({begin, begin}, "with its {key} replaced, the expression is longer than 1 MiB");
      if (used_ && std::find(used_->begin(), used_->end(), key) == used_->end()) used_->push_back(key);
      out += *value;
      at = end;
    }
    return out;
  }

  const std::function<const std::string*(const std::string& key)>& lookup_;
  std::vector<std::string>* used_;
  std::size_t growth_ = 0;  // bytes that replaced a {key}
};

}  // namespace

Expr substitute(const Expr& tree, const std::function<const std::string*(const std::string& key)>& lookup,
                std::vector<std::string>* used) {
  Expr result = tree;
  Substitution(lookup, used).in_expr(result);
  return result;
}

}  // namespace hami
