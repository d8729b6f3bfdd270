// Tree to canonical text: no white space, quotes only where a value needs them.
#include "lang/chars.hpp"
#include "lang/parse.hpp"

namespace hami {
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
