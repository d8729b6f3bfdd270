// "Did you mean": candidates near a misspelt name.
#include "base/near.hpp"

#include <algorithm>
#include <tuple>

namespace hami {
namespace {

constexpr std::size_t kEdit = 16;      // cost of one insertion, deletion, replacement or transposition
constexpr std::size_t kCase = 1;       // cost of a letter in the other case
constexpr std::size_t kLongest = 128;  // longer names get no suggestion; bounds the work on hostile input
constexpr std::size_t kPrefixLeast = 4;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::size_t replace_cost(char a, char b) {
  if (a == b) return 0;
  return lower(a) == lower(b) ? kCase : kEdit;
}

// Optimal string alignment: each place is edited at most once.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j * kEdit;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i * kEdit;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + kEdit, row[j - 1] + kEdit, last[j - 1] + replace_cost(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]) &&
          lower(a[i - 1]) != lower(a[i - 2])) {
        row[j] = std::min(row[j], before[j - 2] + kEdit);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  std::size_t length = 0;
  while (length < a.size() && length < b.size() && lower(a[length]) == lower(b[length])) ++length;
  return length;
}

// Near in spelling (one edit per three letters), or in family (ResizeMt was given and ResizeTensor exists).
bool is_near(std::string_view name, std::string_view candidate, std::size_t cost) {
  const std::size_t edits_allowed = std::max<std::size_t>(1, std::max(name.size(), candidate.size()) / 3);
  // A word of one or two letters with an edit is another word, unless only the case differs.
  if (cost < kEdit || (cost < (edits_allowed + 1) * kEdit && cost < name.size() * kEdit / 2)) return true;
  const std::size_t prefix = common_prefix(name, candidate);
  return prefix >= kPrefixLeast && prefix * 3 >= name.size() * 2;
}

struct Ranked {
  std::size_t cost;
  std::size_t length_gap;
  const std::string* name;

  bool operator<(const Ranked& other) const {
    return std::tie(cost, length_gap, *name) < std::tie(other.cost, other.length_gap, *other.name);
  }
};

}  // namespace

std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& candidates,
                                    std::size_t limit) {
  std::vector<Ranked> found;
  if (name.empty() || name.size() > kLongest) return {};
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongest || candidate == name) continue;
    const std::size_t cost = distance(name, candidate);
    if (!is_near(name, candidate, cost)) continue;
    const std::size_t shorter = std::min(name.size(), candidate.size());
    found.push_back({cost, std::max(name.size(), candidate.size()) - shorter, &candidate});
  }
  std::vector<std::string> names;
  while (!found.empty() && names.size() < limit) {
    const auto nearest = std::min_element(found.begin(), found.end());
    if (names.empty() || names.back() != *nearest->name) names.push_back(*nearest->name);
    *nearest = found.back();
    found.pop_back();
  }
  return names;
}

std::string did_you_mean(const std::vector<std::string>& near, bool quoted) {
  if (near.empty()) return {};
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < near.size(); ++i) {
    if (i > 0) text += i + 1 == near.size() ? " or " : ", ";
    text += quoted ? '"' + near[i] + '"' : near[i];
  }
  return text + "?";
}

}  // namespace hami
