// Callers who ask again after their answer: what a node does, in percent of the best of five fixed strategies that know the
// number of callers, their pause and the cost of a batch.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "product.hpp"
#include "report.hpp"
#include "strategies.hpp"

using namespace hami::testing::policy;

namespace {

constexpr double kAlpha = 0.1438, kBeta = 1.8874;  // milliseconds of an item, and of a batch: ResNet-50 on an H100
constexpr std::size_t kCap = 64;

Load closed(std::size_t callers, double pause, bool exponential) {
  Load load;
  load.cap = kCap;
  load.callers = callers;
  load.service = [](double items, double) { return kBeta + kAlpha * items; };
  load.pause = [=](Random& random) {
    return pause * (exponential ? random.exponential() : 0.8 + 0.4 * random.uniform());
  };
  return load;
}

}  // namespace

TEST_CASE("policy: closed loops of 2 to 32 callers reach the best of five fixed strategies") {
  constexpr double kPauses[] = {0.05, 0.1, 0.25, 0.5, 1, 2};  // in beta
  double sum = 0, worst = 100;
  std::size_t cases = 0;
  Table table("closed", {"pause", "callers", "0.05", "0.1", "0.25", "0.5", "1", "2"});
  for (const bool exponential : {false, true})
    for (const std::size_t callers : {2, 3, 4, 8, 16, 32}) {
      std::vector<std::string> row{exponential ? "exponential" : "±20 %", std::to_string(callers)};
      for (const double pause : kPauses) {
        const Load load = closed(callers, pause * kBeta, exponential);
        double best = 0;
        for (const Strategy strategy : kStrategies) {
          Fixed fixed(strategy, {kBeta, pause * kBeta, callers, exponential, kCap});
          best = std::max(best, simulate(fixed, load).rate);
        }
        Product product(kCap);
        const double part = 100 * simulate(product, load).rate / best;
        row.push_back(text(part, 1));
        sum += part;
        worst = std::min(worst, part);
        ++cases;
      }
      table.row(row);
    }
  const double mean = sum / static_cast<double>(cases);
  table.row({"mean", text(mean, 1)});
  table.row({"worst", text(worst, 1)});
  table.write();
  CHECK_GE(mean, 98.5);
  CHECK_GE(worst, 95.0);
}
