// Converts expressions to their canonical text and to Python data.
#include "expression.hpp"

#include <pybind11/stl.h>

#include "lang/api.hpp"

namespace py = pybind11;

namespace hami::bind {
namespace {

Expr parse_or_throw(const std::string& text, const std::string& where) {
  try {
    return parse(text);
  } catch (const SyntaxError& error) {
    throw Error(ErrorCode::kConfig, message_with_caret(error.what(), text, error.span, where, error.hint));
  }
}

std::string print_expression(const std::string& text, const std::string& where) {
  return print(parse_or_throw(text, where));
}

// (key, value, has plain braces): braces of a quoted value are plain text.
py::tuple tree_of(const Arg& arg) {
  const bool plain_braces = arg.quoted && arg.value.find_first_of("{}") != std::string::npos;
  return py::make_tuple(arg.key, arg.value, plain_braces);
}

py::list tree_of(const std::vector<Arg>& args) {
  py::list list;
  for (const Arg& arg : args) list.append(tree_of(arg));
  return list;
}

[[gnu::cold]] py::dict tree_of(const Expr& expr) {
  py::list phases;
  for (const std::vector<Item>& phase : expr.phases) {
    py::list items;
    for (const Item& item : phase) {
      py::dict entry;
      entry["alias"] = item.alias;
      if (item.is_setting)
        entry["setting"] = tree_of(item.setting);
      else
        entry["expr"] = tree_of(*item.expr);
      items.append(std::move(entry));
    }
    phases.append(std::move(items));
  }
  py::dict tree;
  tree["distribution"] = expr.distribution;
  tree["name"] = expr.name;
  tree["when"] = tree_of(expr.when);
  tree["args"] = tree_of(expr.args);
  tree["phases"] = std::move(phases);
  return tree;
}

py::dict parse_tree(const std::string& text) { return tree_of(parse_or_throw(text, "")); }

}  // namespace

void register_expressions(py::module_& module) {
  module.def(
      "print_expression", print_expression, py::arg("text"), py::arg("where") = "",
      "Return the canonical form of an expression. Raises ConfigError, with `where` in the message, if it is invalid.");
  module.def("parse_tree", parse_tree, py::arg("text"),
             "Return an expression as nested dicts and lists. Raises ConfigError if it is invalid.");
}

}  // namespace hami::bind
