// Histogram: how often values of each size occurred. Any thread records without a lock; histograms of one kind can be merged.
//
// Buckets are logarithmic: below 2 * kParts each value has a bucket of its own; above, each power of two has kParts buckets.
// A quantile is therefore at most 1 / (2 * kParts), about 3 %, away from the value that it stands for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hami {

class Histogram {
 public:
  static constexpr unsigned kPartBits = 4;
  static constexpr std::size_t kParts = std::size_t{1} << kPartBits;
  // Values from 2^42 on, more than an hour in nanoseconds, count in the last bucket.
  static constexpr unsigned kMaxBits = 42;
  static constexpr std::size_t kBuckets = (kMaxBits - kPartBits + 1) * kParts;

  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    counts_[bucket_of(value)].fetch_add(times, std::memory_order_relaxed);
    sum_.fetch_add(value * times, std::memory_order_relaxed);
  }
  void merge(const Histogram& other) noexcept {
    for (std::size_t i = 0; i < kBuckets; ++i)
      if (const std::uint64_t count = other.count(i)) counts_[i].fetch_add(count, std::memory_order_relaxed);
    sum_.fetch_add(other.sum(), std::memory_order_relaxed);
  }

  std::uint64_t count(std::size_t bucket) const noexcept { return counts_[bucket].load(std::memory_order_relaxed); }
  std::uint64_t sum() const noexcept { return sum_.load(std::memory_order_relaxed); }

  static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < 2 * kParts) return static_cast<std::size_t>(value);
    if (value >> kMaxBits) return kBuckets - 1;
    const unsigned shift = highest_bit(value) - kPartBits;
    return shift * kParts + static_cast<std::size_t>(value >> shift);
  }
  // The values of a bucket are at least lower_bound(bucket) and less than lower_bound(bucket + 1).
  static constexpr std::uint64_t lower_bound(std::size_t bucket) noexcept {
    if (bucket < 2 * kParts) return bucket;
    const std::size_t shift = bucket / kParts - 1;
    return static_cast<std::uint64_t>(kParts + bucket % kParts) << shift;
  }

 private:
  static constexpr unsigned highest_bit(std::uint64_t value) noexcept {
    return 63u - static_cast<unsigned>(__builtin_clzll(value));
  }

  std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
  std::atomic<std::uint64_t> sum_{0};
};

}  // namespace hami
