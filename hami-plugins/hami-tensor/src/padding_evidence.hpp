// PaddingEvidence: for which requests comparisons have shown that padding does not change their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace hami_tensor {

// A model can treat padding wrongly for some lengths only. A request is padded without a comparison only if
//  * kRuns runs have compared requests of its class: lengths, and padded lengths, between the same powers of two, and
//  * requests as long as it, padded lengths as large, and as much padding have been compared.
class PaddingEvidence {
 public:
  explicit PaddingEvidence(std::uint64_t seed) noexcept : random_(static_cast<std::minstd_rand::result_type>(seed)) {}

  bool suffices(std::int64_t own, std::int64_t length) const;
  // All requests of a run, by their own lengths, had the results that they have alone.
  void add(const std::vector<std::int64_t>& own, std::int64_t length);
  // Counts a run of `count` requests that is not compared as a whole. Of one in kWatchedOf, one request is compared: which.
  std::optional<std::size_t> watched(std::size_t count);

 private:
  using Class = std::pair<int, int>;
  static Class class_of(std::int64_t own, std::int64_t length) noexcept;

  static constexpr int kRuns = 4;
  static constexpr std::uint64_t kWatchedOf = 64;  // even for runs of two requests, that is below 1 % of the work

  std::map<Class, int> runs_;
  std::int64_t longest_ = -1;
  std::int64_t longest_padded_ = -1;
  std::int64_t most_padding_ = -1;
  std::uint64_t unwatched_ = 0;
  std::minstd_rand random_;
};

}  // namespace hami_tensor
