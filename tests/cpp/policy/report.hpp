// The tables of tests/bench/policy.md. With HAMI_POLICY_REPORT=tests/bench/policy.md in the environment, the tests write their
// figures into that file; without it they only check them.
#pragma once

#include <string>
#include <vector>

namespace hami::testing::policy {

// A number with so many decimals.
std::string text(double number, int decimals = 2);

class Table {
 public:
  // `name`: of the markers `<!-- table NAME -->` and `<!-- end -->` between which the table is.
  Table(std::string name, std::vector<std::string> header) : name_(std::move(name)), rows_{std::move(header)} {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void write() const;

 private:
  std::string name_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace hami::testing::policy
