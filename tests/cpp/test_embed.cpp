// A program with libhami.a and no Python: it loads a plugin by its path and runs a pipe.
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "pipes.hpp"

namespace {

struct Ended {
  int code;
  std::string output;  // and what went to standard error
};

Ended run(const std::string& arguments) {
  const std::string command = std::string(HAMI_EMBED_EXAMPLE) + " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  Ended ended{};
  char part[256];
  while (const std::size_t size = std::fread(part, 1, sizeof part, pipe)) ended.output.append(part, size);
  ended.code = WEXITSTATUS(pclose(pipe));
  return ended;
}

}  // namespace

TEST_CASE("a program without Python loads a plugin and runs a pipe") {
  const Ended ended = run(HAMI_ADDONE " 'S[AddOne(step=2),AddOne]' 1 39");
  CHECK(ended.output == "4\n42\nsum 46\n");
  CHECK(ended.code == 0);
}

TEST_CASE("what is wrong in a program without Python is an error with the core's text") {
  Ended ended = run(HAMI_ADDONE " AddOn 1");
  CHECK(ended.output.find("error: backend \"AddOn\" not found; did you mean AddOne?\n") == 0);
  CHECK(ended.code == 1);
  ended = run("/nowhere/addone.so AddOne 1");
  CHECK(ended.output == "error: /nowhere/addone.so: cannot open shared object file: No such file or directory\n");
}
