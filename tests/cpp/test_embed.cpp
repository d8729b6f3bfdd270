// Programs that link libhami.a and do not use Python: they load a plugin by its path and run pipes.
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "built.hpp"
#include "pipes.hpp"

using hami::testing::built;

namespace {

struct Finished {
  int code;
  std::string output;  // standard output and standard error
};

Finished run(const std::string& arguments, const char* program = "embed_example") {
  const std::string command = built(program) + " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  Finished finished{};
  char part[256];
  while (const std::size_t size = std::fread(part, 1, sizeof part, pipe)) finished.output.append(part, size);
  finished.code = WEXITSTATUS(pclose(pipe));
  return finished;
}

}  // namespace

TEST_CASE("a program without Python loads a plugin and runs a pipe") {
  const Finished finished = run(built("addone.so") + " 'S[AddOne(step=2),AddOne]' 1 39");
  CHECK(finished.output == "4\n42\nsum 46\n");
  CHECK(finished.code == 0);
}

TEST_CASE("a program without Python gets the core's error messages") {
  Finished finished = run(built("addone.so") + " AddOn 1");
  CHECK(finished.output.find("error: backend \"AddOn\" not found; did you mean AddOne?\n") == 0);
  CHECK(finished.code == 1);
  finished = run("/nowhere/addone.so AddOne 1");
  CHECK(finished.output == "error: /nowhere/addone.so: cannot open shared object file: No such file or directory\n");
}

TEST_CASE("a program without Python can use nodes, error codes, timeouts and close") {
  const Finished finished = run(built("addone.so"), "embedded");
  CHECK(finished.code == 0);
  CHECK(finished.output ==
        "AddOne\n"
        "42\n"
        "r1 2\n"
        "100 expected int, got str\n"
        "101 the request has no `data`\n"
        "100 expected int, got str\n"
        "timed out\n"
        "9 each top-level entry must be a node, which is a dict of its keys; \"node\" is int\n"
        "9 unknown parameter \"stp\" for AddOne; did you mean \"step\"?  (accepts: step: int = 1)\n"
        "9 \"[\" is never closed\n"
        "0 backends abandoned\n"
        "14 the pipe is closed\n");
}
