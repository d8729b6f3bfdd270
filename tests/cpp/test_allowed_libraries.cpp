// Files with native code that a configuration names: allowed ones only, however they are written.
#include "lang/paths.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "pipe/planner.hpp"
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace fs = std::filesystem;

namespace {

// A folder of its own for each test case, with the files a.so and sub/b.so.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(fs::temp_directory_path() / ("hami-" + std::to_string(getpid()) + "-" + name)) {
    fs::create_directories(path_ / "sub");
    std::ofstream(path_ / "a.so") << "a";
    std::ofstream(path_ / "sub" / "b.so") << "b";
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

bool allowed(const std::string& path) {
  try {
    check_library(path, "library of Engine");
    return true;
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kConfig);
    CHECK_EQ(error.message(),
             "library of Engine loads native code, which a configuration may do only from allowed files; allow \"" +
                 path + "\" by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library");
    return false;
  }
}

}  // namespace

TEST_CASE("a library is allowed if it, or a folder above it, was allowed") {
  const Folder folder("allowed");
  CHECK_FALSE(allowed(folder / "a.so"));
  allow_library(folder / "a.so");
  CHECK(allowed(folder / "a.so"));
  CHECK_FALSE(allowed(folder / "sub/b.so"));
  CHECK_FALSE(allowed(folder / "a.so.1"));
  allow_library(folder / "sub/");
  CHECK(allowed(folder / "sub/b.so"));
  CHECK(allowed(folder / "sub/absent.so"));
  CHECK_FALSE(allowed(folder / "sub2/b.so"));
  allow_library("/");
  CHECK_FALSE(allowed("/absent.so"));
}

TEST_CASE("links and dots do not lead from an allowed folder to another file") {
  const Folder folder("links");
  allow_library(folder / "sub");
  CHECK_FALSE(allowed(folder / "sub/../a.so"));
  CHECK_FALSE(allowed(folder / "sub/absent/../../a.so"));
  fs::create_symlink(folder / "a.so", folder / "sub/link.so");
  CHECK_FALSE(allowed(folder / "sub/link.so"));
  fs::create_symlink(folder / "sub", folder / "other");
  CHECK(allowed(folder / "other/b.so"));
  const fs::path before = fs::current_path();
  fs::current_path(folder / "sub");
  CHECK(allowed("./b.so"));
  CHECK_FALSE(allowed("b.so"));  // the loader of the system would search for this name
  fs::current_path(before);
}

TEST_CASE("links that lead nowhere, and the empty path, allow nothing") {
  const Folder folder("loop");
  fs::create_symlink(folder / "loop", folder / "loop");
  allow_library(folder / "loop/a.so");
  CHECK_FALSE(allowed(folder / "loop/a.so"));
  allow_library("");
  CHECK_FALSE(allowed(folder / "a.so"));
}

TEST_CASE("the environment allows libraries when the process starts") {
  const char* const variable = std::getenv("HAMI_ALLOWED_LIBRARIES");
  const std::string wanted = "/hami/engine.so::/hami/more";
  if (variable && variable == wanted) {
    CHECK(allowed("/hami/engine.so"));
    CHECK(allowed("/hami/more/a.so"));
    CHECK_FALSE(allowed("/hami/a.so"));
  } else {
    const std::string program = fs::read_symlink("/proc/self/exe").string();
    const std::string chosen = "--test-case=*the environment allows libraries*";
    CHECK_EQ(
        std::system(("HAMI_ALLOWED_LIBRARIES=" + wanted + " '" + program + "' '" + chosen + "' >/dev/null").c_str()),
        0);
  }
}

TEST_CASE("a name that the system's loader searches for is allowed by itself") {
  CHECK_FALSE(allowed("libacme.so"));
  CHECK_FALSE(allowed(""));
  allow_library("libacme.so");
  CHECK(allowed("libacme.so"));
  CHECK_FALSE(allowed("./libacme.so"));
}

TEST_CASE("a parameter of the type library takes allowed files only, and its default is always allowed") {
  register_core();
  const Folder folder("parameter");
  define("TestEngine", [](Batch batch, const Params& params) {
    for (Request* request : batch) answer(*request, Value(params.get<std::string>("library")));
  }, {{}, {}, "library: library = '/default.so'"});
  const auto problem = [](Keys keys, Keys global) {
    PipeConfig config = one_node(std::move(keys));
    config.global.keys = std::move(global);
    const std::vector<Error> problems = plan_pipe(config).second;
    return problems.empty() ? std::string() : problems[0].message().substr(0, problems[0].message().find('\n'));
  };
  const std::string file = folder / "a.so";
  const std::string refused =
      "parameter \"library\" of TestEngine loads native code, which a configuration may do only from allowed files; "
      "allow \"" +
      file + "\" by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library";
  CHECK_EQ(problem({{"backend", "TestEngine"}}, {}), "");
  CHECK_EQ(problem({{"backend", "TestEngine"}, {"library", file}}, {}), refused);
  CHECK_EQ(problem({{"backend", "TestEngine"}, {"TestEngine.library", file}}, {}), refused);
  CHECK_EQ(problem({{"backend", "TestEngine"}}, {{"library", file}}), refused);
  CHECK_EQ(problem({{"backend", "TestEngine(library='" + file + "')"}}, {}), refused);
  allow_library(file);
  CHECK_EQ(problem({{"backend", "TestEngine(library='" + file + "')"}}, {}), "");
  TestPipe pipe(one_node({{"backend", "TestEngine"}, {"library", file}}));
  CHECK_EQ(pipe.call(Value(1)).result().as_text(), file);
}
