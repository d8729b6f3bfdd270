// Runs every input of the fuzzing corpus again: the invariants hold for each, and none takes a second.
#include <doctest/doctest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "checks.hpp"

namespace {

template <class Check>
std::size_t replay(const char* folder, Check check) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(HAMI_FUZZ_CORPUS) / folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    const std::clock_t begin = std::clock();
    CHECK_NOTHROW(check(input));
    CHECK((std::clock() - begin) / CLOCKS_PER_SEC < 1);
    ++count;
  }
  return count;
}

TEST_CASE("every expression of the corpus is an expression that prints and parses back, or is refused with a place") {
  CHECK(replay("expression", hami::fuzz::check_expression) > 30);
}

TEST_CASE("every configuration of the corpus is planned, or all its problems have messages") {
  CHECK(replay("configuration", hami::fuzz::check_configuration) > 8);
}

}  // namespace
