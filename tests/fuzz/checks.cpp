// Properties that hold for every input.
#include "checks.hpp"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "lang/expression.hpp"
#include "pipe/pipe_state.hpp"
#include "pipe/planner.hpp"
#include "value/visible.hpp"

namespace hami::fuzz {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw Broken(what);
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid) return false;
    at += point.bytes;
  }
  return true;
}

void require_message(const std::string& message) {
  require(!message.empty() && message.front() != '\n', "a message has a first line");
  require(is_utf8(message), "a message is UTF-8");
}

// Some keys have a value; one value contains characters that no name may contain.
const std::string* lookup(const std::string& key) {
  static const std::string kPlain = "node.a-1";
  static const std::string kOdd = "{a} ,]'";
  if (key.size() % 3 == 0) return nullptr;
  return key.size() % 3 == 1 ? &kPlain : &kOdd;
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

Value read_value(std::string_view text) {
  if (text == "true" || text == "false") return Value(text == "true");
  const std::string copy(text);
  char* end = nullptr;
  if (!copy.empty()) {
    const long long whole = std::strtoll(copy.c_str(), &end, 10);
    if (end == copy.c_str() + copy.size()) return Value(static_cast<std::int64_t>(whole));
    const double real = std::strtod(copy.c_str(), &end);
    if (end == copy.c_str() + copy.size()) return Value(real);
  }
  if (copy.empty() || copy[0] != '|') return Value(copy);
  std::vector<Value> elements;
  for (text.remove_prefix(1);;) {
    const std::size_t end_of_element = std::min(text.find('|'), text.size());
    elements.push_back(Value(std::string(text.substr(0, end_of_element))));
    if (end_of_element == text.size()) break;
    text.remove_prefix(end_of_element + 1);
  }
  return make_list(std::move(elements));
}

// Later entries replace earlier ones, as in any dict.
void set(PipeConfig::Section& section, const std::string& key, Value value) {
  for (auto& [name, old] : section.keys)
    if (name == key) {
      old = std::move(value);
      return;
    }
  section.keys.emplace_back(key, std::move(value));
}

PipeConfig::Section& section_of(PipeConfig& config, const std::string& name) {
  if (name == "global") return config.global;
  for (PipeConfig::Section& node : config.nodes)
    if (node.name == name) return node;
  config.nodes.push_back({name, {}});
  return config.nodes.back();
}

PipeConfig read_configuration(std::string_view text) {
  PipeConfig config;
  std::string section;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    ++line_number;
    if (line.size() > 2 && line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2);
      section_of(config, section);
      continue;
    }
    const std::size_t mark = line.find(" = ");
    if (mark == std::string_view::npos) continue;
    const std::string key(line.substr(0, mark));
    const std::string_view value = line.substr(mark + 3);
    if (!section.empty())
      set(section_of(config, section), key, read_value(value));
    else if (key == "entrypoint")
      config.entrypoint = value;
    else if (key == "dag_entrypoint")
      config.dag_entrypoint = value;
    else
      config.providers[key] = value;
    config.where[{section, key}] = "fuzz.toml:" + std::to_string(line_number);
  }
  return config;
}

}  // namespace

void check_expression(std::string_view text) {
  Expr tree;
  try {
    tree = parse(text);
  } catch (const SyntaxError& error) {
    require(error.span.begin <= text.size() && error.span.begin <= error.span.end, "an error is within the text");
    require_message(message_with_caret(error.what(), text, error.span, "", error.hint));
    return;
  }
  const std::string printed = print(tree);
  const Expr again = parse(printed);
  require(same_tree(again, tree), "the print parses to the same tree");
  require(print(again) == printed, "the print is canonical");
  try {
    const Expr filled = substitute(tree, lookup);
    require(same_tree(parse(print(filled)), filled), "the tree after substitution prints and parses to the same tree");
  } catch (const SyntaxError& error) {
    require(error.span.end <= text.size() && error.span.begin <= error.span.end, "an error is within the text");
    require_message(message_with_caret(error.what(), text, error.span, "", error.hint));
  }
}

void check_configuration(std::string_view text) {
  if (!is_utf8(text)) return;  // a PipeConfig always comes from files or str, which are UTF-8
  register_core();
  const PipeConfig config = read_configuration(text);
  const auto [plan, problems] = plan_pipe(config);
  for (const Error& problem : problems) require_message(problem.message());
  const auto [plan_again, problems_again] = plan_pipe(config);
  require(problems_again.size() == problems.size(), "a second plan finds the same problems");
  for (std::size_t i = 0; i < problems.size(); ++i)
    require(problems_again[i].message() == problems[i].message(), "a second plan finds the same problems");
  if (problems.empty()) require(plan.nodes.size() == config.nodes.size(), "every node is planned");
}

}  // namespace hami::fuzz
