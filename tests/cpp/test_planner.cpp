// From configuration to plan: which value a parameter gets, which names mean what, and every mistake found in one run.
#include "pipe/planner.hpp"
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

void define_shows() {
  register_core();
  // Answers with the values of its parameters.
  define("TestShows", [](Batch batch, const Params& params) {
    for (Request* request : batch)
      answer(*request, Value(params.get<std::string>("x") + "," + std::to_string(params.get<std::int64_t>("n"))));
  }, {{}, {}, "x: str = 'default'; n: int = 0"});
  define("TestNeeds", [](Batch, const Params&) {}, {{}, {}, "model: path; size: int = 3"});
  define("TestLists", [](Batch, const Params&) {}, {{}, {}, "words: list"});
}

std::string shown(Keys keys, Keys global = {}) {
  define_shows();
  PipeConfig config = one_node(std::move(keys));
  config.global.keys = std::move(global);
  TestPipe pipe(config);
  return std::string(pipe.call(Value(1)).result().as_text());
}

std::vector<std::string> texts_of(PipeConfig config) {
  define_shows();
  std::vector<std::string> texts;
  for (const Error& problem : plan_pipe(config).second) texts.push_back(problem.message());
  return texts;
}

std::string problem_of(Keys keys, Keys global = {}) {
  PipeConfig config = one_node(std::move(keys));
  config.global.keys = std::move(global);
  std::string all;
  for (const std::string& text : texts_of(std::move(config))) all += (all.empty() ? "" : "\n\n") + text;
  return all.empty() ? "none" : all;
}

}  // namespace

TEST_CASE("a parameter: in the expression, under X.key, in the node, in [global], the default; first match wins") {
  const Keys everywhere{{"x", "node"}, {"TestShows.x", "own"}};
  const Keys global{{"x", "global"}};
  Keys keys = everywhere;
  keys.emplace_back("backend", "TestShows(x=call)");
  CHECK_EQ(shown(keys, global), "call,0");  // and what it overrides counts as used
  CHECK_EQ(shown({{"backend", "S[TestShows,TestShows(x=call)]"}, {"x", "node"}}), "call,0");
  CHECK_EQ(shown({{"backend", "TestShows"}, {"TestShows.x", "own"}, {"x", "node"}}, global), "own,0");
  CHECK_EQ(shown({{"backend", "TestShows"}, {"x", "node"}}), "node,0");
  CHECK_EQ(shown({{"backend", "TestShows"}}, global), "global,0");
  CHECK_EQ(shown({{"backend", "TestShows"}}), "default,0");
  CHECK_EQ(shown({{"backend", "TestShows(call, 7)"}}), "call,7");
  CHECK_EQ(shown({{"backend", "TestShows(n=\"7\")"}}), "default,7");
  CHECK_EQ(shown({{"backend", "TestShows"}, {"n", 4.0}}), "default,4");
}

TEST_CASE("a wrong parameter is shown with its position") {
  CHECK_EQ(problem_of({{"backend", "TestShows(y=1)"}}),
           "unknown parameter \"y\" for TestShows  (accepts: x: str = \"default\", n: int = 0)\n"
           "  in  TestShows(y=1)   (node \"n\")\n                ^");
  CHECK_EQ(problem_of({{"backend", "TestNeeds(modle=a)"}}),
           "unknown parameter \"modle\" for TestNeeds; did you mean \"model\"?  (accepts: model: path, size: int = 3)\n"
           "  in  TestNeeds(modle=a)   (node \"n\")\n                ^^^^^");
  CHECK_EQ(problem_of({{"backend", "TestShows(n=four)"}}),
           "parameter \"n\" of TestShows takes int, got \"four\"\n  in  TestShows(n=four)   (node \"n\")\n"
           "                  ^^^^");
  CHECK_EQ(problem_of({{"backend", "TestShows"}, {"n", "four"}}),
           "parameter \"n\" of TestShows takes int, got \"four\"\n  in  n = \"four\"   (node \"n\")\n      ^");
  CHECK_EQ(problem_of({{"backend", "TestShows"}}, {{"n", "four"}}),
           "parameter \"n\" of TestShows takes int, got \"four\"\n  in  n = \"four\"   ([global])\n      ^");
  CHECK_EQ(problem_of({{"backend", "TestShows(a,1,2)"}}),
           "TestShows takes 2 parameters, got one more\n  in  TestShows(a,1,2)   (node \"n\")\n"
           "                    ^\n  (accepts: x: str = \"default\", n: int = 0)");
  CHECK_EQ(problem_of({{"backend", "TestShows(a,x=b)"}}),
           "parameter \"x\" of TestShows is given twice\n  in  TestShows(a,x=b)   (node \"n\")\n                    ^");
  CHECK_EQ(problem_of({{"backend", "TestLists(words=a,b)"}}),
           "parameter \"words\" of TestLists is given twice\n  in  TestLists(words=a,b)   (node \"n\")\n"
           "                        ^\n  write a list in quotes: words='…, …'");
  CHECK_EQ(problem_of({{"backend", "S[Identity,TestNeeds]"}}),
           "parameter \"model\" of TestNeeds is missing\n  in  S[Identity,TestNeeds]   (node \"n\")\n"
           "                 ^^^^^^^^^\n"
           "  give  model = …  in the node, or write TestNeeds(model=…)  (accepts: model: path, size: int = 3)");
  CHECK_EQ(problem_of({{"backend", "Identity(1)"}}),
           "Identity takes 0 parameters, got one more\n  in  Identity(1)   (node \"n\")\n               ^\n"
           "  (accepts no parameters)");
}

TEST_CASE("a key that nothing uses is a mistake, in the node and in [global]") {
  CHECK_EQ(problem_of({{"backend", "TestNeeds(a)"}, {"szie", 1}}),
           "nothing uses the key \"szie\"; did you mean \"size\"?\n  in  szie = 1   (node \"n\")\n      ^^^^");
  CHECK_EQ(problem_of({{"backend", "TestNeeds(a)"}, {"TestNeeds.szie", 1}}),
           "nothing uses the key \"TestNeeds.szie\"; did you mean \"TestNeeds.size\" or \"TestNeeds.model\"?\n"
           "  in  TestNeeds.szie = 1   (node \"n\")\n      ^^^^^^^^^^^^^^");
  CHECK_EQ(
      problem_of({{"backend", "Identity"}, {"completely", 1}}),
      "nothing uses the key \"completely\"\n  in  completely = 1   (node \"n\")\n      ^^^^^^^^^^\n"
      "  the keys here are accept_skipped, admission, aging, backend, batching, batching_timeout, filter, init_timeout, instance_num, map, "
      "max, max_queue_size, max_wait, memory_limit, min, next, node_entrypoint, on_batch_error, on_full, or, otherwise, request_cost, reserve, shared_device, timeout");
  CHECK_EQ(
      problem_of({{"backend", "Identity"}}, {{"instance_nun", 2}}),
      "nothing uses the key \"instance_nun\"; did you mean \"instance_num\"?\n  in  instance_nun = 2   ([global])\n"
      "      ^^^^^^^^^^^^");
  // A {key} and a Reflect[key] are uses.
  CHECK_EQ(problem_of({{"backend", "S[Reflect[post],TestShows(x={word})]"}, {"post", "Identity"}, {"word", "w"}}),
           "none");
}

TEST_CASE("{key} is replaced from the node's parameters; one that is missing is named") {
  CHECK_EQ(shown({{"backend", "TestShows(x={word}, n={number})"}, {"word", "w"}, {"number", 5}}), "w,5");
  CHECK_EQ(shown({{"backend", "TestShows(x={node_name})"}}), "n,0");
  const std::string missing = problem_of({{"backend", "TestShows(x={wrod})"}});
  CHECK_EQ(missing.substr(0, missing.find('\n')), "{wrod} has no value");
}

TEST_CASE("Reflect builds what a key holds, else the default, else Identity") {
  define_shows();
  const auto result = [](const char* backend, Keys more) {
    more.emplace_back("backend", backend);
    TestPipe pipe(std::move(more));
    const Value made = pipe.call(Value(1)).result();
    return made.kind() == Kind::kInt ? std::to_string(made.as_int()) : std::string(made.as_text());
  };
  CHECK_EQ(result("Reflect[post]", {{"post", "TestShows(x=key)"}}), "key,0");
  CHECK_EQ(result("Reflect[post]", {}), "1");
  CHECK_EQ(result("Reflect[post, other]", {{"other", "TestShows(x=other)"}}), "other,0");
  CHECK_EQ(result("Reflect[post, TestShows(x=written)]", {}), "written,0");
  CHECK_EQ(result("Reflect[post, default=other]", {{"other", "TestShows(x=other)"}}), "other,0");
  CHECK_EQ(result("Reflect[post, default='S[Identity,TestShows(x=text)]']", {}), "text,0");
  CHECK_EQ(result("ProxyFromParam[post]", {{"post", "S[Reflect[inner],TestShows(n=3)]"}, {"inner", "Identity"}}),
           "default,3");
  CHECK_EQ(problem_of({{"backend", "Reflect[post, fallback=X]"}}),
           "Reflect takes a key and a default, got the setting \"fallback\"\n"
           "  in  Reflect[post, fallback=X]   (node \"n\")\n                    ^^^^^^^^^^\n"
           "  write Reflect[key, X] or Reflect[key, default=X]");
  CHECK_EQ(
      problem_of({{"backend", 5}}),
      "\"backend\" must be a pipeline expression in quotes, got int\n  in  backend = 5   (node \"n\")\n      ^^^^^^^");
}

TEST_CASE("an expression that refers to itself is found out") {
  CHECK_EQ(problem_of({{"backend", "S[Identity,Reflect[backend]]"}}),
           "the expression under \"backend\" refers to itself\n  in  S[Identity,Reflect[backend]]   (node \"n\")\n"
           "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^");
  CHECK_EQ(problem_of({{"backend", "Reflect[a]"}, {"a", "Reflect[b]"}, {"b", "Reflect[a]"}}),
           "the expression under \"a\" refers to itself\n  in  Reflect[b]   (node \"n\")\n      ^^^^^^^^^^");
  CHECK_EQ(problem_of({{"backend", "Identity"}, {"node_entrypoint", "Reflect[node_entrypoint]"}}),
           "the expression under \"node_entrypoint\" refers to itself\n  in  Reflect[node_entrypoint]   (node \"n\")\n"
           "      ^^^^^^^^^^^^^^^^^^^^^^^^");
}

TEST_CASE("names bound by an IoC are seen by what is written around them, not by what a key holds") {
  define_shows();
  CHECK_EQ(shown({{"backend", "IoC[a:=TestShows(x=bound);S[Identity,a]]"}}), "bound,0");
  CHECK_EQ(shown({{"backend", "IoC[a:=TestShows(x=outer);IoC[a:=TestShows(x=inner);a]]"}}), "inner,0");
  CHECK_EQ(shown({{"backend", "IoC[Identity,b:=S[Identity,TestShows(x=second)];b]"}}), "second,0");
  CHECK_EQ(shown({{"backend", "IoC[a:=TestShows(x=bound);Reflect[post, a]]"}}), "bound,0");
  CHECK_EQ(problem_of({{"backend", "IoC[zz:=Identity;Reflect[post]]"}, {"post", "zz"}}),
           "backend \"zz\" not found\n  in  zz   (node \"n\")\n      ^^");
  CHECK_EQ(problem_of({{"backend", "S[zz:=Identity]"}}),
           "an alias means nothing to Sequential\n  in  S[zz:=Identity]   (node \"n\")\n        ^^\n"
           "  aliases name the items of IoC before its `;`");
}

TEST_CASE("brackets are checked by what the class declares") {
  CHECK_EQ(problem_of({{"backend", "Identity[Identity]"}}),
           "Identity takes no brackets\n  in  Identity[Identity]   (node \"n\")\n      ^^^^^^^^^^^^^^^^^^");
  CHECK_EQ(problem_of({{"backend", "S[Identity,DI]"}}),
           "DI needs brackets\n  in  S[Identity,DI]   (node \"n\")\n                 ^^\n  DI takes [backend, …]");
  CHECK_EQ(problem_of({{"backend", "S(Identity,Identity)"}}),
           "S needs brackets\n  in  S(Identity,Identity)   (node \"n\")\n      ^\n"
           "  S takes [backend, …]; parentheses are for parameters");
  CHECK_EQ(problem_of({{"backend", "IoC[Identity;Identity;Identity]"}}),
           "IoC takes [backend, …; backend], got 3 phases\n  in  IoC[Identity;Identity;Identity]   (node \"n\")\n"
           "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  phases are separated by ;");
  CHECK_EQ(problem_of({{"backend", "IoC[Identity;Identity,Identity]"}}),
           "IoC takes one backend in phase 2, got 2\n  in  IoC[Identity;Identity,Identity]   (node \"n\")\n"
           "                   ^^^^^^^^^^^^^^^^^");
  CHECK_EQ(problem_of({{"backend", "Reflect[a,b,c]"}}),
           "Reflect takes 1 to 2 keys, got 3\n  in  Reflect[a,b,c]   (node \"n\")\n              ^^^^^");
  CHECK_EQ(problem_of({{"backend", "FanOut[max=3]"}}),
           "FanOut takes no settings in its brackets, got \"max\"\n  in  FanOut[max=3]   (node \"n\")\n"
           "             ^^^^^\n  write parameters as FanOut(max=…)[…]");
  CHECK_EQ(problem_of({{"backend", "Forward[S[Identity]]"}}),
           "Forward takes the name of an instance here, not an expression\n  in  Forward[S[Identity]]   (node \"n\")\n"
           "              ^^^^^^^^^^^");
  CHECK_EQ(problem_of({{"backend", "S[Identity,(and)Identity]"}}),
           "\"(and)\" before an item means nothing to Sequential\n  in  S[Identity,(and)Identity]   (node \"n\")\n"
           "                  ^^^\n  Sequential knows (or)");
  CHECK_EQ(problem_of({{"backend", "node.x[Identity]"}}),
           "\"node.x\" is an instance; it takes no parameters and no brackets\n  in  node.x[Identity]   (node \"n\")\n"
           "      ^^^^^^^^^^^^^^^^");
}

TEST_CASE("a missing instance name is found before any backend is made") {
  const auto missing = [](const char* backend) {
    const std::string text = problem_of({{"backend", backend}, {"instance_num", 3}});
    return text.substr(text.find("instance \""),
                       text.find("\n  in  ", text.find("instance \"")) - text.find("instance \""));
  };
  CHECK_EQ(problem_of({{"backend", "S[Identity,node.m]"}}),
           "instance \"node.m\" not found; did you mean node.n?\n  in  S[Identity,node.m]   (node \"n\")\n"
           "                 ^^^^^^");
  CHECK_EQ(missing("Forward[n.3]"), "instance \"n.3\" not found; did you mean n.0 or n.2?");
  CHECK_EQ(missing("Repost[n.03,n.9]"), "instance \"n.03\" not found; did you mean n.0?");
  CHECK_EQ(missing("Observer(m.queue)"), "instance \"node.m\" not found; did you mean node.n?");
  CHECK_EQ(missing("Send(n.queue.3)"), "instance \"n.3\" not found; did you mean n.0 or n.2?");
  CHECK_EQ(problem_of({{"backend", "InstanceFromParam[next_one]"}, {"next_one", "absent_x"}}),
           "instance \"absent_x\" not found\n  in  InstanceFromParam[next_one]   (node \"n\")\n"
           "                        ^^^^^^^^");
  // Not what is not built, nor what is known only when it is.
  for (const char* good : {"S[n.0,n.2,node.n,Forward[n]]", "ModelLoader[(.onnx)Identity,(.trt)node.m]",
                           "S[Recv(n.queue)[Identity],n.7]", "S[Send(n.queue.1),Forward[n.queue.1]]"})
    CHECK_EQ(problem_of({{"backend", good}, {"instance_num", 3}, {"model", "a.onnx"}}).find("instance \""),
             std::string::npos);
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "Identity"}, {"next", "b"}}}, {"b", {{"node_entrypoint", "List[Identity]"}}}};
  CHECK(texts_of(config) == std::vector<std::string>{"instance \"node.b\" not found; did you mean node.a?\n"
                                                     "  in  DagDispatcher\n      ^^^^^^^^^^^^^"});
  config.nodes[0].keys[0].second = Value("Other");  // which may register any name
  CHECK_EQ(texts_of(config).size(), 1u);
}

TEST_CASE("StateFul is refused in a backend of which copies are made") {
  const std::string told = problem_of({{"backend", "S[StateFul[Identity],Identity]"}, {"instance_num", 2}});
  CHECK_EQ(told.substr(0, told.find("\n  they")),
           "StateFul is part of the backend of node \"n\", which has several instances\n"
           "  in  S[StateFul[Identity],Identity]   (node \"n\")\n        ^^^^^^^^");
  CHECK_EQ(problem_of({{"backend", "StateFul[Identity]"}}), "none");
  CHECK_EQ(problem_of({{"backend", "Identity"},
                       {"instance_num", 2},
                       {"node_entrypoint",
                        "List[InstancesRegister[Reflect[backend]],Register[StateFul[Batching,InstanceDispatcher]]]"}}),
           "none");
}

TEST_CASE("what next and map take, and where keys belong") {
  const auto headline = [](Keys keys, Keys global = {}) {
    const std::string text = problem_of(std::move(keys), std::move(global));
    return text.substr(0, text.find('\n'));
  };
  CHECK_EQ(headline({{"backend", "Identity"}, {"next", 5}}),
           "next takes names of nodes, as \"b,c\" or [\"b\", \"c\"], got 5");
  CHECK_EQ(headline({{"backend", "Identity"}, {"next", make_list({Value(5)})}}),
           "next takes names of nodes, as \"b,c\" or [\"b\", \"c\"], got 5");
  CHECK_EQ(headline({{"backend", "Identity"}, {"map", make_list({Value("a[b:c]")})}}),
           "map is one text, as \"det[result:data],src[data:image]\", got [\"a[b:c]\"]");
  for (const char* key : {"next", "map", "or", "filter", "InstanceDispatcher.max"})
    CHECK_EQ(problem_of({{"backend", "Identity"}}, {{key, "x"}}),
             std::string("nothing uses the key \"") + key + "\"\n  in  " + key + " = \"x\"   ([global])\n      " +
                 std::string(std::string(key).size(), '^') + "\n  this key is only valid in a node, not in [global]");
  CHECK_EQ(problem_of({{"backend", "Identity"}, {"entrypoint", "E"}}),
           "nothing uses the key \"entrypoint\"\n  in  entrypoint = \"E\"   (node \"n\")\n      ^^^^^^^^^^\n"
           "  this key belongs at the top of the file, before the first table");
}

TEST_CASE("scheduling names are accepted in init expressions only") {
  for (const char* name : {"Batching", "InstanceDispatcher", "Register[Identity]", "InstancesRegister[Identity]"}) {
    const std::string bare = std::string(name).substr(0, std::string(name).find('['));
    CHECK_EQ(problem_of({{"backend", name}}),
             bare + " schedules a node and is only allowed in a node's init expression\n  in  " + name +
                 "   (node \"n\")\n      " + std::string(bare.size(), '^') + "\n  put it under `node_entrypoint`");
  }
}

TEST_CASE("an unknown name is shown with similar names") {
  CHECK_EQ(problem_of({{"backend", "S[Identity,Identty]"}}),
           "backend \"Identty\" not found; did you mean Identity?\n  in  S[Identity,Identty]   (node \"n\")\n"
           "                 ^^^^^^^");
}

TEST_CASE("every problem carries the place of what is wrong") {
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "S[Identity"}, {"next", "absent"}}},
                  {"b", {{"backend", "TestShows"}, {"n", "four"}, {"colour", "red"}}},
                  {"c", {{"backend", "Reflect[post]"}, {"post", "Pass["}, {"map", "gone[result:data]"}}},
                  {"d", {{"backend", "TestShows"}, {"or", true}}}};
  config.global.keys = {{"n", "many"}};
  config.dag_entrypoint = "DagDispatcher[Identity]";
  int line = 0;
  for (const PipeConfig::Section& node : config.nodes) {
    for (const auto& entry : node.keys) config.where[{node.name, entry.first}] = "p.toml:" + std::to_string(++line);
    config.where[{node.name, ""}] = "p.toml:" + std::to_string(100 + line);
  }
  config.where[{"global", "n"}] = "p.toml:50";
  config.where[{"", "dag_entrypoint"}] = "p.toml:60";
  std::string places;
  for (const std::string& text : texts_of(config)) {
    const std::size_t begin = text.rfind("   (") + 4;
    places += text.substr(0, text.find('\n')) + "  " + text.substr(begin, text.find(')', begin) - begin) + "\n";
  }
  CHECK_EQ(places,
           "\"[\" is never closed  node \"a\", p.toml:1\n"
           "parameter \"n\" of TestShows takes int, got \"four\"  node \"b\", p.toml:4\n"
           "\"[\" is never closed  node \"c\", p.toml:7\n"
           "parameter \"n\" of TestShows takes int, got \"many\"  [global], p.toml:50\n"
           "DagDispatcher takes no brackets  p.toml:60\n"
           "nothing uses the key \"colour\"  node \"b\", p.toml:5\n"
           "node \"absent\" does not exist  node \"a\", p.toml:2\n"
           "node \"gone\" does not exist  node \"c\", p.toml:8\n");
}

TEST_CASE("a reported problem is not reported again") {
  PipeConfig config = one_node({{"backend", "S[Identity,TestShows(x={word})]"}, {"n", Value()}, {"word", Value()}});
  config.unknown = {{"n", "n"}, {"n", "word"}};
  CHECK(texts_of(config).empty());
  PipeConfig no_backend = one_node({{"backend", Value()}, {"colour", "red"}});  // which may be a key of its backend
  no_backend.unknown = {{"n", "backend"}};
  CHECK(texts_of(no_backend).empty());
}

TEST_CASE("a right configuration is planned: classes, parameters and graph") {
  define_shows();
  PipeConfig config;
  config.nodes = {
      {"a",
       {{"backend", "ModelLoader[(.onnx)Identity,(.trt)TestShows]"}, {"model", "a.trt"}, {"x", "y"}, {"next", "b"}}},
      {"b", {{"backend", "S[Identity,(or)Identity]"}, {"or", "yes"}}}};
  const auto planned = plan_pipe(config);
  const PipePlan& plan = planned.first;
  REQUIRE(planned.second.empty());
  REQUIRE_EQ(plan.nodes.size(), 2u);
  const auto backend_of = [&](std::size_t node) -> const Plan& {
    return *plan.nodes[node].second.phases[0][0].plan->phases[0][0].plan;  // List[InstancesRegister[backend], …]
  };
  CHECK_EQ(backend_of(0).cls->name, "TestShows");
  CHECK_EQ(backend_of(0).params.get<std::string>("x"), "y");
  CHECK_EQ(backend_of(1).label, "S");
  CHECK_EQ(backend_of(1).cls->name, "Sequential");
  CHECK(backend_of(1).phases[0][1].says("or"));
  CHECK_FALSE(backend_of(1).phases[0][0].says("or"));
  CHECK_EQ(plan.entry.cls->name, "DagDispatcher");
  REQUIRE_EQ(plan.graph.size(), 2u);
  CHECK(plan.graph[0].next == std::vector<std::string>{"b"});
  CHECK(plan.graph[1].is_or);
}

TEST_CASE("all that is wrong is found in one run, and nothing is made") {
  int made = 0;
  BackendClass cls;
  cls.name = "TestMade";
  cls.create = [&made]() -> BackendPtr {
    ++made;
    return nullptr;
  };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "S[TestMade,Identty,TestShows(n=x)]"}, {"next", "bb"}}},
                  {"b", {{"backend", "TestNeeds"}, {"colour", "red"}}}};
  const std::vector<std::string> texts = texts_of(config);
  std::string headlines;
  for (const std::string& text : texts) headlines += text.substr(0, text.find('\n')) + "\n";
  CHECK_EQ(headlines,
           "backend \"Identty\" not found; did you mean Identity?\n"
           "parameter \"n\" of TestShows takes int, got \"x\"\n"
           "parameter \"model\" of TestNeeds is missing\n"
           "nothing uses the key \"colour\"\n"
           "node \"bb\" does not exist\n");
  bool thrown = false;
  try {
    PipeState::build(config);
  } catch (const PlanProblems& found) {
    thrown = true;
    CHECK_EQ(found.problems.size(), texts.size());
  }
  CHECK(thrown);
  CHECK_EQ(made, 0);
}

TEST_CASE("a configuration without a node, without a backend, or with an init that is not a string") {
  CHECK(texts_of(PipeConfig{}) == std::vector<std::string>{"the configuration has no node"});
  CHECK_EQ(problem_of({}), "the node has no backend\n  in  [n]   (node \"n\")\n      ^^^\n  add  backend = \"…\"");
  CHECK_EQ(problem_of({{"mark", "?"}}),
           "the node has no backend\n  in  [n]   (node \"n\")\n      ^^^\n  add  backend = \"…\"");
  CHECK_EQ(
      problem_of({{"backend", "Identity"}, {"node_entrypoint", 3}}),
      "node_entrypoint must be a pipeline expression in quotes, got int\n  in  node_entrypoint = 3   (node \"n\")\n"
      "      ^^^^^^^^^^^^^^^");
}

TEST_CASE("a thread of its own is for the whole container, except where the container provides threads") {
  define("TestOwn", [](Batch batch, const Params&) { add(batch, 1); }, {own_thread(), {}, ""});
  const auto traits = [](const char* backend, bool init = false) {
    PipeConfig config = one_node({{"backend", backend}});
    const auto planned = plan_pipe(config);
    CHECK(planned.second.empty());
    const Plan& root = planned.first.nodes[0].second;
    return init ? root.traits : root.phases[0][0].plan->phases[0][0].plan->traits;
  };
  CHECK(traits("S[Identity,TestOwn]").thread == ThreadMode::kDedicated);
  CHECK_FALSE(traits("S[Identity,TestOwn]").non_blocking);
  CHECK(traits("S[Identity,Identity]").non_blocking);
  CHECK(traits("BackgroundThread[TestOwn]").thread == ThreadMode::kConcurrent);
  CHECK(traits("TestOwn", true).thread == ThreadMode::kConcurrent);
}

TEST_CASE("a container is on a device if a class in it has a `device` other than the CPU") {
  register_core();
  define("TestOnDevice", [](Batch batch, const Params&) { add(batch, 1); }, {{}, {}, "device: str = 'cuda'"});
  const auto on_device = [](Keys keys) {
    const auto planned = plan_pipe(one_node(std::move(keys)));
    CHECK(planned.second.empty());
    return planned.first.nodes[0].second.phases[0][0].plan->phases[0][0].plan->traits.on_device;
  };
  CHECK(on_device({{"backend", "S[Identity,TestOnDevice]"}}));
  CHECK(on_device({{"backend", "TestOnDevice"}, {"device", "cuda:1"}}));
  CHECK_FALSE(on_device({{"backend", "TestOnDevice(device=cpu)"}}));
  CHECK_FALSE(on_device({{"backend", "TestOnDevice"}, {"device", "CPU"}}));
  CHECK_FALSE(on_device({{"backend", "Identity"}}));
}
