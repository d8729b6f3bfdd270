// Parameters that are paths: relative to the folder of their file, and files that must exist.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lang/paths.hpp"
#include "pipe/planner.hpp"
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

struct ModelFolder {
  std::string path;
  ModelFolder() {
    std::string made = (std::filesystem::temp_directory_path() / "hami-paths-XXXXXX").string();
    path = mkdtemp(made.data());
    std::ofstream(path + "/m.onnx") << "model";
  }
  ~ModelFolder() { std::filesystem::remove_all(path); }
};

std::string first_problem(const PipeConfig& config) {
  const auto problems = plan_pipe(config).second;
  return problems.empty() ? "" : problems[0].message();
}

void define_model() {
  define("TestModel", [](Batch batch, const Params& params) {
    for (Request* request : batch)
      answer(*request, Value(params.get<std::string>("model") + " " + params.get<std::string>("cache")));
  }, {{}, {}, "model: file 'the file'; cache: path = c"});
}

}  // namespace

TEST_CASE("a relative path is relative to the folder of its file") {
  CHECK_EQ(path_in("/etc/p", "m.onnx"), "/etc/p/m.onnx");
  CHECK_EQ(path_in("/etc/p", "./m.onnx"), "/etc/p/m.onnx");
  CHECK_EQ(path_in("/etc/p", "../m.onnx"), "/etc/p/../m.onnx");
  CHECK_EQ(path_in("/", "m.onnx"), "/m.onnx");
  CHECK_EQ(path_in("/etc/p", "/m.onnx"), "/m.onnx");
  CHECK_EQ(path_in("", "m.onnx"), "m.onnx");
  CHECK_EQ(path_in("/etc/p", ""), "");
  CHECK_EQ(path_in("/etc/\xFF", "/m.onnx"), "/m.onnx");
  CHECK_THROWS_WITH(path_in("/etc/\xFF", "m.onnx"),
                    "\"m.onnx\" is relative to the folder of its file, whose path is not UTF-8; "
                    "give an absolute path, or rename the folder");
}

TEST_CASE("a path that cannot be read, or that holds a NUL, is refused with the reason") {
  const ModelFolder folder;
  const std::string loop = folder.path + "/loop";
  std::filesystem::create_symlink(loop, loop);
  CHECK_THROWS_WITH(check_file(loop, "loop", "model of A"), doctest::Contains("file \"loop\" cannot be read: "));
  const std::string cut("m\0n", 3);
  CHECK_THROWS_WITH(check_file(cut, cut, "model of A"), doctest::Contains("contains a NUL character"));
}

TEST_CASE("a backend receives the resolved path of a file, and a default as it is") {
  define_model();
  const ModelFolder folder;
  PipeConfig config = one_node({{"backend", "TestModel"}, {"model", "m.onnx"}});
  config.folders[{"n", "model"}] = folder.path;
  CHECK_EQ(TestPipe(config).call(Value(1)).result().as_text(), folder.path + "/m.onnx c");
  config = one_node({{"backend", "TestModel(m.onnx,cache=x)"}});
  config.folders[{"n", "backend"}] = folder.path;
  CHECK_EQ(TestPipe(config).call(Value(1)).result().as_text(), folder.path + "/m.onnx " + folder.path + "/x");
}

TEST_CASE("a file that does not exist, an empty path and a folder are problems of the configuration") {
  define_model();
  const ModelFolder folder;
  PipeConfig config = one_node({{"backend", "TestModel"}, {"model", "n.onnx"}});
  config.folders[{"n", "model"}] = folder.path;
  CHECK_EQ(first_problem(config), "parameter \"model\" of TestModel: file \"n.onnx\" does not exist (looked for " +
                                      folder.path + "/n.onnx)\n  in  model = \"n.onnx\"   (node \"n\")\n      ^^^^^");
  config = one_node({{"backend", "TestModel"}, {"model", folder.path}});
  CHECK_EQ(first_problem(config).rfind("parameter \"model\" of TestModel: file \"" + folder.path + "\" is a folder", 0),
           0u);
  config = one_node({{"backend", "TestModel('')"}});
  CHECK_EQ(first_problem(config).rfind("parameter \"model\" of TestModel: file \"\" does not exist", 0), 0u);
}
