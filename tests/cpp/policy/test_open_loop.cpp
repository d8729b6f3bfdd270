// Requests at random moments: the mean latency of a node and of greedy batching, which is the best that is known for them.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "product.hpp"
#include "report.hpp"
#include "strategies.hpp"

using namespace hami::testing::policy;

namespace {

constexpr double kAlpha = 0.1438, kBeta = 1.8874;
constexpr std::size_t kCap = 1024;  // more than ever wait

Load open(double rho, std::size_t burst) {
  Load load;
  load.cap = kCap;
  load.service = [](double items, double) { return kBeta + kAlpha * items; };
  load.burst = burst;
  load.bursts = rho / kAlpha / static_cast<double>(burst);
  load.measures = 40'000;
  return load;
}

}  // namespace

TEST_CASE("policy: requests at random moments wait hardly longer than with greedy batching") {
  Table table("open", {"rho", "burst", "greedy, ms", "HAMi, ms", "ratio"});
  double worst = 0;
  for (const std::size_t burst : {1, 4})
    for (const double rho : {0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9}) {
      const Load load = open(rho, burst);
      Fixed greedy(Strategy::kGreedy, {kBeta, 0, SIZE_MAX, false, kCap});
      Product product(kCap);
      const double least = simulate(greedy, load).latency, latency = simulate(product, load).latency;
      worst = std::max(worst, latency / least);
      table.row({text(rho), std::to_string(burst), text(least, 3), text(latency, 3), text(latency / least, 3)});
    }
  table.write();
  CHECK_LE(worst, 1.03);
}

// Y. Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching", arXiv 1912.06322.
TEST_CASE("policy: the mean latency of random requests is near the exact value of greedy batching") {
  struct Exact {
    double rho, latency;
  };
  Table table("exact", {"rho", "exact, ms", "HAMi, ms", "ratio"});
  for (const Exact& exact :
       {Exact{0.3, 4.225}, Exact{0.5, 5.902}, Exact{0.7, 9.818}, Exact{0.8, 14.715}, Exact{0.9, 29.408}}) {
    Product product(kCap);
    const double latency = simulate(product, open(exact.rho, 1)).latency;
    table.row({text(exact.rho), text(exact.latency, 3), text(latency, 3), text(latency / exact.latency, 3)});
    CAPTURE(exact.rho);
    CHECK_GE(latency, 0.97 * exact.latency);
    CHECK_LE(latency, 1.03 * exact.latency);
  }
  table.write();
}
