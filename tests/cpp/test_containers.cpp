// Sequential, FanOut, IoC, DI, List and names of instances: the order of calls, their inputs, and destruction.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "container/sequential.hpp"
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// Records events in order.
class CallLog {
 public:
  void record(const std::string& what) {
    std::lock_guard lock(mutex_);
    text_ += (text_.empty() ? "" : " ") + what;
  }
  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

// Records its initialisation, injections and destruction. Adds 1, or runs its dependency.
class Recording final : public Backend {
 public:
  Recording(std::string name, CallLog& journal) : name_(std::move(name)), journal_(journal) {}
  ~Recording() override { journal_.record("~" + name_); }

 private:
  void init_(Init&) override { journal_.record(name_); }
  void forward_(Batch batch) override {
    if (dependency_) return dependency_->forward(batch);
    add(batch, 1);
  }
  void inject_dependency_(const BackendPtr& dependency) override {
    journal_.record(name_ + "<-" + dependency->label());
    dependency_ = dependency;
  }

  std::string name_;
  CallLog& journal_;
  BackendPtr dependency_;
};

void define_recording(const std::string& name, CallLog& journal) {
  register_core();
  BackendClass cls;
  cls.name = name;
  cls.owner = "";
  cls.create = [name, &journal] { return std::make_shared<Recording>(name, journal); };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
}

Value numbers(const std::vector<std::int64_t>& list) {
  std::vector<Value> values;
  for (std::int64_t one : list) values.emplace_back(one);
  return make_list(std::move(values));
}

std::vector<std::int64_t> numbers_of(const Value& list) {
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < list.as_list().size(); ++i) values.push_back(list.as_list().at(i).as_int());
  return values;
}

void define_add_one() {
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); });
}

}  // namespace

TEST_CASE("result becomes data between two steps, and a request without result stops") {
  define_add_one();
  const auto seen = std::make_shared<Seen>();
  define("TestOnlyOdd", [=](Batch batch, const Params&) {
    for (Request* request : batch)
      if (number(*request) % 2 == 1) answer(*request, Value(number(*request) * 10));
  });
  define("TestSees", [=](Batch batch, const Params&) {
    seen->add(batch);
    for (Request* request : batch) CHECK_FALSE(request->dict.contains(kResult));
    add(batch, 1);
  });
  TestPipe pipe({{"backend", "S[TestAddOne,TestOnlyOdd,TestSees]"}, {"max", 8}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({0, 1, 2}));
  CHECK_EQ(outcomes[0].number(), 11);
  CHECK(outcomes[1].code == ErrorCode::kNoResult);
  CHECK_EQ(outcomes[1].message, "TestOnlyOdd left no `result`");
  CHECK_EQ(outcomes[2].number(), 31);
  CHECK(seen->batches() == Rows{{10, 30}});
}

TEST_CASE("an (or) step runs only for requests without a result or an error") {
  const auto seen = std::make_shared<Seen>();
  define("TestThirds", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      if (number(*request) % 3 == 0) answer(*request, Value(1000));
      if (number(*request) % 3 == 1) request->fail(Error(ErrorCode::kRequest, "a first"));
    }
  });
  define("TestSees", [=](Batch batch, const Params&) {
    seen->add(batch);
    add(batch, 1);
  });
  define_add_one();
  TestPipe pipe({{"backend", "S[TestThirds,(or)TestSees,(or)TestSees,TestAddOne]"}, {"max", 8}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({3, 4, 5}));
  CHECK_EQ(outcomes[0].number(), 1001);
  CHECK_EQ(outcomes[1].message, "a first");
  CHECK_EQ(outcomes[2].number(), 7);
  CHECK(seen->batches() == Rows{{5}});
}

TEST_CASE("a step with max 1 runs requests one by one, and fails only the request that it fails for") {
  const auto seen = std::make_shared<Seen>();
  define("TestOne", [=](Batch batch, const Params&) {
    seen->add(batch);
    if (number(batch[0]) == 2) throw Error(ErrorCode::kRequest, "no 2");
    add(batch, 0);
  }, {{}, {1, 1}, ""});
  define("TestMany", [=](Batch batch, const Params&) {
    seen->add(batch);
    add(batch, 10);
  }, {{}, {1, 4}, ""});
  TestPipe pipe({{"backend", "S[TestOne,TestMany]"}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({1, 2, 3}));
  CHECK_EQ(outcomes[0].number(), 11);
  CHECK_EQ(outcomes[1].message, "no 2");
  CHECK_EQ(outcomes[2].number(), 13);
  CHECK(seen->batches() == Rows{{1}, {2}, {3}, {1, 3}});
}

TEST_CASE("a sequence has the range of the child with the smallest max above 1") {
  const auto limits = [](const std::vector<Range>& ranges) {
    const Range range = narrowest(ranges);
    return std::pair{range.min, range.max};
  };
  constexpr std::size_t kAny = Range::kUnbounded;
  CHECK(limits({{1, 8}, {2, 4}, {1, 1}}) == std::pair<std::size_t, std::size_t>{2, 4});
  CHECK(limits({{1, 1}, {1, kAny}}) == std::pair<std::size_t, std::size_t>{1, kAny});
  CHECK(limits({}) == std::pair<std::size_t, std::size_t>{1, kAny});
}

TEST_CASE("a sequence learns its batch size if a child does and none has a smaller max above 1") {
  constexpr std::size_t kAny = Range::kUnbounded, kAuto = Range::kAuto;
  const auto max = [](const std::vector<Range>& ranges) { return narrowest(ranges).max; };
  CHECK_EQ(max({{1, kAuto}, {1, kAuto}}), kAuto);
  CHECK_EQ(max({{1, kAny}, {1, kAuto}, {1, 1}}), kAuto);
  CHECK_EQ(max({{1, kAuto}, {1, 8}}), 8u);
}

TEST_CASE("each element of a list runs as a request of its own") {
  define_add_one();
  TestPipe pipe({{"backend", "FanOut[TestAddOne]"}});
  CHECK(numbers_of(pipe.call(numbers({1, 2, 3})).result()) == std::vector<std::int64_t>{2, 3, 4});
  CHECK(numbers_of(pipe.call(numbers({})).result()).empty());
  const CallResult wrong = pipe.call(Value(1));
  CHECK(wrong.code == ErrorCode::kDataType);
  CHECK_EQ(wrong.message, "FanOut takes a list in `data`, got int");
  CHECK_EQ(pipe.call(Dict()).message, "the request has no `data`; FanOut takes a list");
}

TEST_CASE("nested lists keep their shape") {
  define_add_one();
  TestPipe pipe({{"backend", "FanOut[FanOut[TestAddOne]]"}});
  const Value nested = pipe.call(make_list({numbers({1}), numbers({}), numbers({2, 3})})).result();
  CHECK(numbers_of(nested.as_list().at(0)) == std::vector<std::int64_t>{2});
  CHECK(numbers_of(nested.as_list().at(1)).empty());
  CHECK(numbers_of(nested.as_list().at(2)) == std::vector<std::int64_t>{3, 4});
}

TEST_CASE("an element that fails is the error of the request, with its index") {
  define("TestPositive", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      if (number(*request) < 0) request->fail(Error(ErrorCode::kRequest, "negative"));
      if (number(*request) > 0) answer(*request, Value(number(*request)));
    }
  });
  TestPipe pipe({{"backend", "FanOut[TestPositive]"}, {"max", 8}});
  const CallResult made = pipe.call(numbers({1, -1, 2}));
  CHECK_EQ(made.message, "negative");
  CHECK(made.notes == std::vector<std::string>{"element 1 of 3", "node \"n\""});
  const CallResult none = pipe.call(numbers({1, 0}));
  CHECK(none.code == ErrorCode::kNoResult);
  CHECK_EQ(none.message, "an element of the list has no `result`");
  // Another request of the same batch succeeds.
  std::vector<Dict> dicts;
  dicts.push_back(request_of(numbers({-1})));
  dicts.push_back(request_of(numbers({1, 2})));
  const std::vector<CallResult> outcomes = pipe.call_many(std::move(dicts));
  CHECK_FALSE(outcomes[0].good);
  CHECK(numbers_of(outcomes[1].result()) == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("elements of different requests share the batches of their node") {
  const Gated gated("TestGated", {own_thread(), {1, 8}, ""});
  PipeConfig config = one_node({{"backend", "TestGated"}});
  config.entrypoint = "FanOut[Forward[node.n]]";
  TestPipe pipe(config);
  std::vector<TestPipe::Pending> pending;
  pending.push_back(pipe.submit(numbers({0})));
  gated.gate->arrived.wait_for(1);
  pending.push_back(pipe.submit(numbers({1, 2})));
  pending.push_back(pipe.submit(numbers({3, 4})));
  gated.gate->open();
  CHECK(numbers_of(pending[1].wait().result()) == std::vector<std::int64_t>{101, 102});
  CHECK(numbers_of(pending[2].wait().result()) == std::vector<std::int64_t>{103, 104});
  CHECK(pending[0].wait().good);
  CHECK(gated.seen->batches() == Rows{{0}, {1, 2, 3, 4}});
}

TEST_CASE("an IoC creates its items in order, shares them by name, and destroys them in reverse order") {
  CallLog journal;
  for (const char* name : {"TestA", "TestB", "TestC"}) define_recording(name, journal);
  {
    TestPipe pipe({{"backend", "IoC[x:=TestA,TestB;S[x,TestB,x,TestC]]"}});
    CHECK_EQ(pipe.call(Value(0)).number(), 4);
  }
  CHECK_EQ(journal.text(), "TestA TestB TestC ~TestC ~TestB ~TestA");
}

TEST_CASE("a sequence initialises its steps from right to left") {
  CallLog journal;
  for (const char* name : {"TestA", "TestB", "TestC"}) define_recording(name, journal);
  TestPipe pipe({{"backend", "S[TestA,TestB,TestC]"}});
  CHECK_EQ(journal.text(), "TestC TestB TestA");
}

TEST_CASE("DI injects each item into the one before it and runs the first") {
  CallLog journal;
  for (const char* name : {"TestA", "TestB", "TestC"}) define_recording(name, journal);
  {
    TestPipe pipe({{"backend", "DI[TestA,TestB,TestC]"}});
    CHECK_EQ(pipe.call(Value(0)).number(), 1);
  }
  CHECK_EQ(journal.text(), "TestA TestB TestC TestA<-TestB TestB<-TestC ~TestA ~TestB ~TestC");
}

TEST_CASE("an item that cannot be run or injected raises a clear error") {
  define_add_one();
  TestPipe list({{"backend", "List[TestAddOne]"}});
  CHECK_EQ(list.call(Value(1)).message, "List has no forward; it only initialises its items");
  CHECK_THROWS_WITH_AS(TestPipe({{"backend", "DI[TestAddOne,TestAddOne]"}}), "TestAddOne takes no dependency", Error);
  CHECK_THROWS_WITH_AS(
      TestPipe({{"backend", "TestAddOne"},
                {"node_entrypoint", "List[InstancesRegister[Reflect[backend]],Register[DI[Batching,Identity]]]"}}),
      "Batching takes an InstanceDispatcher, got Identity", Error);
  CHECK_THROWS_WITH_AS(TestPipe({{"node_entrypoint", "List[Register[InstanceDispatcher]]"}}),
                       "InstanceDispatcher found no instance of node \"n\"; put InstancesRegister[…] before it", Error);
}

TEST_CASE("instances can be called by name, and an unknown name fails the build of the pipe") {
  define_add_one();
  PipeConfig config = one_node({{"backend", "TestAddOne"}, {"instance_num", 2}});
  config.entrypoint = "S[n.0,n.1,node.n]";
  {
    TestPipe pipe(config);
    CHECK_EQ(pipe.call(Value(0)).number(), 3);
  }
  config.entrypoint = "Forward[node.m]";
  CHECK_THROWS_AS(TestPipe{config}, PlanProblems);
  CHECK_THROWS_WITH_AS(
      TestPipe({{"backend", "TestAddOne"},
                {"node_entrypoint",
                 "List[InstancesRegister[TestAddOne],InstancesRegister[Reflect[backend]],Register[Identity]]"}}),
      "instance \"n.0\" exists already", Error);
}

TEST_CASE("a node may call an instance of a node that is built later") {
  define_add_one();
  struct Case {
    const char* caller;
    std::int64_t answer;
  };
  for (const Case& one : {Case{"Forward[node.later]", 2}, Case{"S[TestAddOne,later.0]", 3},
                          Case{"BackgroundThread[HasKey(data)[Forward[node.later]]]", 2}}) {
    CAPTURE(one.caller);
    PipeConfig config;
    config.nodes = {{"first", {{"backend", one.caller}}}, {"later", {{"backend", "TestAddOne"}}}};
    config.dag_entrypoint = "Forward[node.first]";
    TestPipe pipe(config);
    for (const CallResult& made : pipe.call_many(requests_of({1, 1}))) CHECK_EQ(made.number(), one.answer);
  }
}

TEST_CASE("a value that a backend sends while it is initialised is received when all backends are built") {
  const auto threads = [] {
    std::set<std::string> found;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
      found.insert(thread.path().string());
    return found;
  };
  class Sends final : public Backend {
   public:
    explicit Sends(std::function<void()> sent) : sent_(std::move(sent)) {}

   private:
    void init_(Init& init) override {
      init.context().resources.queue("q")->push(Value(7));
      sent_();
    }
    void forward_(Batch batch) override { add(batch, 1); }
    std::function<void()> sent_;
  };
  const auto threads_before = threads();
  register_core();
  BackendClass cls;
  cls.name = "TestSends";
  cls.create = [&] {
    return std::make_shared<Sends>([&] {  // nothing can receive it yet; a thread of an earlier test may end
      const std::set<std::string> now = threads();
      CHECK(std::includes(threads_before.begin(), threads_before.end(), now.begin(), now.end()));
    });
  };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
  const Gated later("TestLater", {});
  later.gate->open();
  PipeConfig config;
  config.nodes = {
      {"receives",
       {{"backend", "Identity"},
        {"node_entrypoint",
         "List[InstancesRegister[Reflect[backend]],Register[InstanceDispatcher],Recv(q)[Forward[later.0]]]"}}},
      {"sends", {{"backend", "TestSends"}}}};
  for (int i = 0; i < 50; ++i) config.nodes.push_back({"n" + std::to_string(i), {{"backend", "Identity"}}});
  config.nodes.push_back({"later", {{"backend", "TestLater"}}});
  config.dag_entrypoint = "Forward[node.sends]";
  TestPipe pipe(config);
  later.gate->arrived.wait_for(1);
  CHECK(later.seen->batches() == Rows{{7}});
}

TEST_CASE("a backend with a dedicated thread is destroyed on this thread, after its last forward") {
  std::thread::id made, freed, ran;
  class OnThread final : public Backend {
   public:
    OnThread(std::thread::id& made_on, std::thread::id& ran_on, std::thread::id& freed_on)
        : ran_(ran_on), freed_(freed_on) {
      made_on = std::this_thread::get_id();
    }
    ~OnThread() override { freed_ = std::this_thread::get_id(); }

   private:
    void forward_(Batch batch) override {
      ran_ = std::this_thread::get_id();
      add(batch, 1);
    }
    std::thread::id& ran_;
    std::thread::id& freed_;
  };
  BackendClass cls;
  cls.name = "TestOnThread";
  cls.traits = own_thread();
  cls.create = [&] { return std::make_shared<OnThread>(made, ran, freed); };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
  for (const char* backend : {"TestOnThread", "BackgroundThread[TestOnThread]", "S[TestOnThread,Identity]",
                              "S[Identity,BackgroundThread[TestOnThread]]"}) {
    TestPipe pipe({{"backend", backend}});
    CHECK_EQ(pipe.call(Value(1)).number(), 2);
    CHECK(pipe.close().empty());
    CHECK((made == ran));
    CHECK((made == freed));
    CHECK((made != std::this_thread::get_id()));
  }
}
