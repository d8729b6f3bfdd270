// A pipeline expression as a tree with positions: copies and comparison.
#include "lang/tree.hpp"

#include <algorithm>

namespace hami {
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
  if (!a.expr || !b.expr) return a.expr == b.expr;
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

Item& Item::operator=(const Item& other) {
  if (this != &other) *this = Item(other);
  return *this;
}

bool same_tree(const Expr& a, const Expr& b) {
  return a.distribution == b.distribution && a.name == b.name && same_args(a.when, b.when) &&
         same_args(a.args, b.args) &&
         std::equal(a.phases.begin(), a.phases.end(), b.phases.begin(), b.phases.end(), same_phase);
}

}  // namespace hami
