// Text to tree, by recursive descent over the grammar; as deep as the brackets nest, at most kMaxDepth.

#include <unordered_set>

#include "lang/expression.hpp"
#include "lang/scanner.hpp"
#include "value/api.hpp"

namespace hami {
namespace {

constexpr const char* kNameHint =
    "a name is letters, digits, \"_\" and \"-\", in parts joined by \".\", and may hold {key}";
constexpr const char* kKeyHint = "a key is letters, digits and \"_\" and does not start with a digit";
constexpr const char* kQuoteHint = "white space and , ; = ( ) [ ] { } in a value need quotes";
constexpr const char* kItemHint = "expected a backend, the name of an instance, or key=value";

char closer_of(char open) { return open == '(' ? ')' : ']'; }
char opener_of(char close) { return close == ')' ? '(' : '['; }

std::string mark(char c) { return std::string{'"', c, '"'}; }

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Expr parse_all() {
    if (in_.at_end()) {
      throw SyntaxError({0, 0}, "the expression is empty", "expected a backend, for example S[DecodeMat,ResizeMat]");
    }
    Expr expr = parse_expr();
    if (!in_.at_end()) fail_after(expr);
    return expr;
  }

 private:
  struct Open {
    char bracket;
    std::uint32_t position;
  };

  Expr parse_expr(const std::string& alias = {});
  void parse_name(Expr& expr, const std::string& after);
  void parse_args(std::vector<Arg>& args);
  Arg parse_arg();
  void parse_setting_value(Arg& arg);
  void parse_brackets(Expr& expr);
  Item parse_item();

  void open(char bracket);
  bool close(char bracket);
  [[noreturn]] void fail_missing(const std::string& what, const std::string& after, const std::string& hint,
                                 const std::string& hint_if_unexpected = {}) const;
  [[noreturn]] void fail_unexpected(const std::string& hint) const;
  [[noreturn]] void fail_after(const Expr& expr) const;

  Scanner in_;
  std::vector<Open> open_;
};

// Uses a set, so that a list of a million keys takes linear time.
template <class Args, class ArgOf>
void refuse_duplicate_keys(const Args& args, ArgOf arg_of) {
  std::unordered_set<std::string_view> seen;
  for (const auto& entry : args) {
    const Arg* arg = arg_of(entry);
    if (arg && !arg->key.empty() && !seen.insert(arg->key).second) {
      throw SyntaxError(arg->key_span, "key " + in_quotes(arg->key) + " is given twice", "keep one of them");
    }
  }
}

// `alias`: the alias before the expression, for the message if nothing follows.
Expr Parser::parse_expr(const std::string& alias) {
  Expr expr;
  expr.span.begin = in_.position();
  std::string after = alias.empty() ? "" : alias + ":=";
  if (in_.peek() == '(') {
    parse_args(expr.when);
    after = in_.text({expr.span.begin, in_.last_end()});
  }
  parse_name(expr, after);
  if (in_.peek() == '(') parse_args(expr.args);
  if (in_.peek() == '[') parse_brackets(expr);
  expr.span.end = in_.last_end();
  return expr;
}

void Parser::parse_name(Expr& expr, const std::string& after) {
  Span word = in_.take_word();
  expr.name_span = word;
  if (word.begin == word.end) {
    if (in_.at_quote()) fail_unexpected("the name of a backend is written without quotes");
    fail_missing("the name of a backend", after, "expected a backend, for example DecodeMat");
  }
  if (in_.take("::")) {
    if (!is_distribution(in_.text(word))) {
      throw SyntaxError(word, in_quotes(in_.text(word)) + " is not a valid distribution name",
                        "expected the name of an installed package, for example hami-image::ResizeMat");
    }
    expr.distribution = in_.text(word);
    word = in_.take_word();
    if (word.begin == word.end) {
      fail_missing("the name of a backend",
                   expr.distribution + "::", "expected a backend, for example hami-image::ResizeMat");
    }
    expr.name_span.end = word.end;
    if (!is_ident_template(in_.text(word))) {
      throw SyntaxError(word, in_quotes(in_.text(word)) + " is not a valid backend name",
                        "after \"::\" a name is letters, digits and \"_\" and does not start with a digit");
    }
  } else if (!is_path(in_.text(word), Templates::kAllowed)) {
    throw SyntaxError(word, in_quotes(in_.text(word)) + " is not a valid name", kNameHint);
  }
  expr.name = in_.text(word);
}

void Parser::parse_args(std::vector<Arg>& args) {
  const std::uint32_t begin = in_.position();
  open('(');
  if (close('(')) {
    throw SyntaxError({begin, in_.last_end()}, "the parentheses are empty",
                      "write a value or key=value between them, or leave them out");
  }
  do {
    args.push_back(parse_arg());
  } while (in_.take(","));
  if (!close('(')) fail_unexpected(std::string("expected \",\" or \")\"; ") + kQuoteHint);
  if (args.size() > 1) refuse_duplicate_keys(args, [](const Arg& arg) { return &arg; });
}

Arg Parser::parse_arg() {
  Arg arg;
  if (!in_.take_value(arg)) {
    fail_missing("a value", "", "expected a value or key=value",
                 std::string("expected a value or key=value; ") + kQuoteHint);
  }
  if (in_.peek() != '=') return arg;
  if (arg.quoted) throw SyntaxError(arg.value_span, "a key is written without quotes", kKeyHint);
  arg.key = std::move(arg.value);
  arg.key_span = arg.value_span;
  parse_setting_value(arg);
  return arg;
}

// From the "=" on; the key has been read.
void Parser::parse_setting_value(Arg& arg) {
  if (!is_ident(arg.key)) throw SyntaxError(arg.key_span, in_quotes(arg.key) + " is not a valid key", kKeyHint);
  in_.take("=");
  if (!in_.take_value(arg)) {
    fail_missing("a value", arg.key + "=", "an empty value is written " + arg.key + "=''",
                 std::string("expected a value; ") + kQuoteHint);
  }
}

void Parser::parse_brackets(Expr& expr) {
  const std::uint32_t begin = in_.position();
  open('[');
  if (close('[')) {
    throw SyntaxError({begin, in_.last_end()}, "the brackets are empty",
                      "write a backend between them, or leave them out");
  }
  bool has_settings = false;
  do {
    std::vector<Item>& phase = expr.phases.emplace_back();
    do {
      phase.push_back(parse_item());
      has_settings = has_settings || phase.back().is_setting;
    } while (in_.take(","));
  } while (in_.take(";"));
  if (!close('[')) {
    const Item& last = expr.phases.back().back();
    if (!last.is_setting) fail_after(*last.expr);
    fail_unexpected(std::string("expected \",\", \";\" or \"]\"; ") + kQuoteHint);
  }
  if (!has_settings) return;
  std::vector<const Arg*> settings;
  for (const std::vector<Item>& phase : expr.phases) {
    for (const Item& item : phase) {
      if (item.is_setting) settings.push_back(&item.setting);
    }
  }
  refuse_duplicate_keys(settings, [](const Arg* arg) { return arg; });
}

Item Parser::parse_item() {
  Item item;
  item.span.begin = in_.position();
  const Span word = in_.take_word();
  if (word.begin != word.end && in_.peek() == '=') {
    item.is_setting = true;
    item.setting.key = in_.text(word);
    item.setting.key_span = word;
    parse_setting_value(item.setting);
    item.span.end = in_.last_end();
    return item;
  }
  if (word.begin != word.end && in_.take(":=")) {
    if (!is_ident(in_.text(word))) {
      throw SyntaxError(word, in_quotes(in_.text(word)) + " is not a valid alias",
                        "an alias is letters, digits and \"_\" and does not start with a digit");
    }
    item.alias = in_.text(word);
    item.alias_span = word;
  } else {
    in_.rewind(item.span.begin);
  }
  if (word.begin == word.end && in_.peek() != '(' && !in_.at_quote()) fail_missing("an item", "", kItemHint);
  item.expr = std::make_unique<Expr>(parse_expr(item.alias));
  item.span.end = in_.last_end();
  return item;
}

void Parser::open(char bracket) {
  const std::uint32_t position = in_.position();
  if (open_.size() == kMaxDepth) {
    throw SyntaxError({position, position + 1}, "brackets are nested deeper than " + std::to_string(kMaxDepth),
                      "give an inner part a name with hami.generate");
  }
  open_.push_back({bracket, position});
  in_.take(std::string_view(&bracket, 1));
}

bool Parser::close(char bracket) {
  const char closer = closer_of(bracket);
  if (!in_.take(std::string_view(&closer, 1))) return false;
  open_.pop_back();
  return true;
}

// `what` must come next, after the text `after`. If the next token could follow `what`, then `what` was left out.
void Parser::fail_missing(const std::string& what, const std::string& after, const std::string& hint,
                          const std::string& hint_if_unexpected) const {
  const char next = in_.peek();
  const bool left_out = next == ',' || next == ';' || (!open_.empty() && next == closer_of(open_.back().bracket));
  const std::string headline = what + " is missing";
  if (!after.empty() && (left_out || (in_.at_end() && open_.empty()))) {
    throw SyntaxError(in_.next_thing(), headline + " after " + in_quotes(after), hint);
  }
  if (left_out) throw SyntaxError(in_.next_thing(), headline + " before " + mark(next), hint);
  fail_unexpected(hint_if_unexpected.empty() ? hint : hint_if_unexpected);
}

// The next token is not allowed here. Before a closing bracket or the end of the text, the error is the bracket that is
// still open.
void Parser::fail_unexpected(const std::string& hint) const {
  const char next = in_.peek();
  const bool closing = next == ')' || next == ']';
  const auto opens_it = [&](const Open& entry) { return entry.bracket == opener_of(next); };
  bool opened = false;
  for (const Open& entry : open_) opened = opened || (closing && opens_it(entry));
  if (closing && !opened) {
    throw SyntaxError(in_.next_thing(), "unexpected " + mark(next), "no " + mark(opener_of(next)) + " is open here");
  }
  if (!open_.empty() && (in_.at_end() || closing)) {
    const Open& innermost = open_.back();
    const std::string before = in_.at_end() ? "the end of the text" : mark(next);
    throw SyntaxError({innermost.position, innermost.position + 1}, mark(innermost.bracket) + " is never closed",
                      "expected " + mark(closer_of(innermost.bracket)) + " before " + before);
  }
  const Span thing = in_.next_thing();
  throw SyntaxError(thing, "unexpected " + in_quotes(in_.text(thing)), hint);
}

// `expr` is complete, and the next token neither separates nor closes.
void Parser::fail_after(const Expr& expr) const {
  const char next = in_.peek();
  if (next == '(') {
    fail_unexpected(expr.phases.empty() ? "a backend takes one list of parameters"
                                        : "parameters come before the brackets: " + visible(expr.name) + "(…)[…]");
  }
  if (next == '[') fail_unexpected("a backend takes one pair of brackets; \";\" separates phases");
  if (in_.starts_with(":=") && !expr.when.empty()) {
    fail_unexpected("an alias comes first: " + visible(expr.name) + ":=(…)…");
  }
  if (next == ':') {
    fail_unexpected(open_.empty() ? "\"::\" follows a distribution; an alias is only allowed inside brackets"
                                  : "\":=\" follows an alias, \"::\" a distribution");
  }
  if (next == '=' && open_.empty()) fail_unexpected("key=value is only allowed inside parentheses or brackets");
  if (!open_.empty()) fail_unexpected("expected \",\", \";\" or \"]\"");
  fail_unexpected("the expression has ended; S[A,B] runs backends one after the other");
}

}  // namespace

Expr parse(std::string_view text) {
  check_text(text);
  return Parser(text).parse_all();
}

}  // namespace hami
