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

Ended run(const std::string& arguments, const std::string& program = HAMI_EMBED_EXAMPLE) {
  const std::string command = program + " " + arguments + " 2>&1";
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

TEST_CASE("mistakes in a program without Python are errors with the core's text") {
  Ended ended = run(HAMI_ADDONE " AddOn 1");
  CHECK(ended.output.find("error: backend \"AddOn\" not found; did you mean AddOne?\n") == 0);
  CHECK(ended.code == 1);
  ended = run("/nowhere/addone.so AddOne 1");
  CHECK(ended.output == "error: /nowhere/addone.so: cannot open shared object file: No such file or directory\n");
}

TEST_CASE("a program without Python has nodes, errors by their code, timeouts, and an end") {
  const Ended ended = run(HAMI_ADDONE, HAMI_EMBEDDED);
  CHECK(ended.code == 0);
  CHECK(ended.output ==
        "AddOne\n"
        "42\n"
        "r1 2\n"
        "100 expected int, got str\n"
        "101 the request has no `data`\n"
        "100 expected int, got str\n"
        "too late\n"
        "9 each top-level entry must be a node, which is a dict of its keys; \"node\" is int\n"
        "9 unknown parameter \"stp\" for AddOne; did you mean \"step\"?  (accepts: step: int = 1)\n"
        "9 \"[\" is never closed\n"
        "0 did not come back\n"
        "14 the pipe is closed\n");
}
