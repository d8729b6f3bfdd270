// Histograms: their buckets, and what concurrent threads record.
#include <thread>

#include "observe/histogram.hpp"
#include "pipes.hpp"

using namespace hami;

TEST_CASE("the buckets of a histogram cover all values without a gap") {
  for (std::size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    const std::uint64_t first = Histogram::lower_bound(bucket);
    const std::uint64_t next = Histogram::lower_bound(bucket + 1);
    REQUIRE(first < next);
    REQUIRE(Histogram::bucket_of(first) == bucket);
    REQUIRE(Histogram::bucket_of(next - 1) == bucket);
    REQUIRE(Histogram::bucket_of(next) == bucket + 1);
  }
  CHECK(Histogram::bucket_of(UINT64_MAX) == Histogram::kBuckets - 1);
}

TEST_CASE("a bucket of a histogram is at most one sixteenth as wide as its values are large") {
  for (std::size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    const std::uint64_t first = Histogram::lower_bound(bucket);
    const std::uint64_t width = Histogram::lower_bound(bucket + 1) - first;
    REQUIRE((width == 1 || width * Histogram::kParts <= first));
  }
}

TEST_CASE("threads record into one histogram without losing a value") {
  Histogram all;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 1; thread <= 4; ++thread)
    threads.emplace_back([&all, thread] {
      for (int i = 0; i < 10000; ++i) all.record(thread);
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t value = 1; value <= 4; ++value) CHECK(all.count(value) == 10000);
  CHECK(all.sum() == 10000 * (1 + 2 + 3 + 4));
}

TEST_CASE("a merged histogram has the counts of both") {
  Histogram one;
  Histogram other;
  one.record(7);
  one.record(1000000, 3);
  other.record(1000000);
  one.merge(other);
  CHECK(one.count(7) == 1);
  CHECK(one.count(Histogram::bucket_of(1000000)) == 4);
  CHECK(one.sum() == 4000007);
}
