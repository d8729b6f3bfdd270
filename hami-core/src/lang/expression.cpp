// Trees of expressions: copies, comparison, templates, canonical text.
#include "lang/expression.hpp"

#include <algorithm>

#include "value/api.hpp"

namespace hami {

// ---- A pipeline expression as a tree with positions: copies and comparison.

namespace {

// Quotes matter only where they keep a brace from being a template.
bool same_arg(const Arg& a, const Arg& b) {
  if (a.key != b.key || a.value != b.value) return false;
  return a.quoted == b.quoted || a.value.find_first_of("{}") == std::string::npos;
}

bool same_args(const std::vector<Arg>& a, const std::vector<Arg>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_arg);
}

bool same_item(const Item& a, const Item& b) {
  if (a.is_setting != b.is_setting || a.alias != b.alias) return false;
  if (a.is_setting) return same_arg(a.setting, b.setting);
  return same_tree(*a.expr, *b.expr);
}

bool same_phase(const std::vector<Item>& a, const std::vector<Item>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_item);
}

}  // namespace

Item::Item(const Item& other)
    : alias(other.alias),
      alias_span(other.alias_span),
      is_setting(other.is_setting),
      setting(other.setting),
      expr(other.expr ? std::make_unique<Expr>(*other.expr) : nullptr),
      span(other.span) {}

Item& Item::operator=(const Item& other) { return *this = Item(other); }

bool same_tree(const Expr& a, const Expr& b) {
  return a.distribution == b.distribution && a.name == b.name && same_args(a.when, b.when) &&
         same_args(a.args, b.args) &&
         std::equal(a.phases.begin(), a.phases.end(), b.phases.begin(), b.phases.end(), same_phase);
}

// ---- Replaces the {key} templates of a tree by the parameters of a node.

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

// ---- Tree to canonical text: no white space, quotes only where a value needs them.

namespace {

// Whether `value` reads back as itself, templates included, without quotes.
bool is_bare(const Arg& arg) {
  const std::string& value = arg.value;
  for (std::size_t i = 0; i < value.size();) {
    if (value[i] == '{' && !arg.quoted) {
      i = template_end(value, i);
      if (i == std::string::npos) return false;
    } else if (is_bare_byte(value[i])) {
      ++i;
    } else {
      return false;
    }
  }
  return !value.empty();
}

void print_quoted(const std::string& value, std::string& out) {
  const bool has_single = value.find('\'') != std::string::npos;
  const char quote = has_single && value.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (const char c : value) {
    switch (c) {
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      case '\r': out += "\\r"; break;
      default:
        if (c == quote || c == '\\') out += '\\';
        out += c;
    }
  }
  out += quote;
}

void print_arg(const Arg& arg, std::string& out) {
  if (!arg.key.empty()) {
    out += arg.key;
    out += '=';
  }
  if (is_bare(arg)) {
    out += arg.value;
  } else {
    print_quoted(arg.value, out);
  }
}

void print_args(const std::vector<Arg>& args, std::string& out) {
  if (args.empty()) return;
  char before = '(';
  for (const Arg& arg : args) {
    out += before;
    print_arg(arg, out);
    before = ',';
  }
  out += ')';
}

void print_expr(const Expr& expr, std::string& out);

void print_item(const Item& item, std::string& out) {
  if (item.is_setting) return print_arg(item.setting, out);
  if (!item.alias.empty()) {
    out += item.alias;
    out += ":=";
  }
  print_expr(*item.expr, out);
}

void print_expr(const Expr& expr, std::string& out) {
  print_args(expr.when, out);
  if (!expr.distribution.empty()) {
    out += expr.distribution;
    out += "::";
  }
  out += expr.name;
  print_args(expr.args, out);
  if (expr.phases.empty()) return;
  char before = '[';
  for (const std::vector<Item>& phase : expr.phases) {
    for (const Item& item : phase) {
      out += before;
      print_item(item, out);
      before = ',';
    }
    before = ';';
  }
  out += ']';
}

}  // namespace

std::string print(const Expr& expr) {
  std::string out;
  print_expr(expr, out);
  return out;
}

}  // namespace hami
