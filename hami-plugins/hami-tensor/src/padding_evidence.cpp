// PaddingEvidence: counts comparisons by length.
#include "padding_evidence.hpp"

#include <algorithm>
#include <set>

namespace hami_tensor {
namespace {

int bit_width(std::int64_t number) noexcept {
  int bits = 0;
  for (; number > 0; number >>= 1) ++bits;
  return bits;
}

}  // namespace

PaddingEvidence::Class PaddingEvidence::class_of(std::int64_t own, std::int64_t length) noexcept {
  return {bit_width(own - 1), bit_width(length - 1)};
}

bool PaddingEvidence::suffices(std::int64_t own, std::int64_t length) const {
  if (own > longest_ || length > longest_padded_ || length - own > most_padding_) return false;
  const auto found = runs_.find(class_of(own, length));
  return found != runs_.end() && found->second >= kRuns;
}

void PaddingEvidence::add(const std::vector<std::int64_t>& own, std::int64_t length) {
  std::set<Class> classes;
  for (const std::int64_t one : own) {
    classes.insert(class_of(one, length));
    longest_ = std::max(longest_, one);
    longest_padded_ = std::max(longest_padded_, length);
    most_padding_ = std::max(most_padding_, length - one);
  }
  for (const Class& one : classes) ++runs_[one];
}

std::optional<std::size_t> PaddingEvidence::watched(std::size_t count) {
  if (++unwatched_ < kWatchedOf) return std::nullopt;
  unwatched_ = 0;
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
}

}  // namespace hami_tensor
