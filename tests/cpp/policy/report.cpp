// Table: replaces the lines between its markers in the report.
#include "report.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace hami::testing::policy {

std::string text(double number, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, number);
  return buffer;
}

void Table::write() const {
  const char* path = std::getenv("HAMI_POLICY_REPORT");
  if (!path) return;
  std::string table;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (const std::string& cell : rows_[i]) table += "| " + cell + " ";
    table += "|\n";
    if (i > 0) continue;
    for (std::size_t k = 0; k < rows_[i].size(); ++k) table += "|---";
    table += "|\n";
  }
  std::printf("%s\n%s\n", name_.c_str(), table.c_str());
  std::ifstream in(path);
  std::string report((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string marker = "<!-- table " + name_ + " -->\n";
  const std::size_t begin = report.find(marker);
  REQUIRE_NE(begin, std::string::npos);
  const std::size_t end = report.find("<!-- end -->", begin);
  REQUIRE_NE(end, std::string::npos);
  std::ofstream(path) << report.replace(begin + marker.size(), end - begin - marker.size(), table);
}

}  // namespace hami::testing::policy
