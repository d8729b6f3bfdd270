// CatSplit, With and Repost: requests that share one run, borrow a backend, or send a copy elsewhere.
#include "pipes.hpp"
#include "sync/event.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// What happened, in order.
using Journal = std::vector<std::string>;

// A backend of a function that notes when it is initialised.
class Noted final : public Backend {
 public:
  Noted(std::string name, Journal& journal, std::function<void(Batch)> function, Range range)
      : name_(std::move(name)), journal_(journal), function_(std::move(function)), range_of_(range) {}

 private:
  void init_(Init&) override { journal_.push_back(name_); }
  void forward_(Batch batch) override { function_(batch); }
  Range range_() const override { return range_of_; }

  std::string name_;
  Journal& journal_;
  std::function<void(Batch)> function_;
  Range range_of_;
};

void define_noted(const std::string& name, Journal& journal, std::function<void(Batch)> function, Range range = {}) {
  register_core();
  BackendClass cls;
  cls.name = name;
  cls.owner = "";
  cls.create = [=, &journal] { return std::make_shared<Noted>(name, journal, function, range); };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
}

// TestGather makes one list of the batch and fails a request of 13; TestDouble runs on the list and throws if 99 is in it;
// TestScatter gives each its part, but for 7.
struct Trio {
  Journal journal;
  std::vector<std::size_t> gathered;  // how many elements, and how many items, each run was on
  std::vector<std::size_t> items;

  Trio() {
    define_noted("TestGather", journal, [](Batch batch) {
      std::vector<Value> all;
      for (Request* request : batch) {
        if (number(*request) == 13) request->fail(Error(ErrorCode::kRequest, "no 13"));
        if (!request->alive()) continue;
        request->dict.set("place", Value(static_cast<std::int64_t>(all.size())));
        all.emplace_back(number(*request));
      }
      const Value list = make_list(std::move(all));
      for (Request* request : batch)
        if (request->alive()) answer(*request, list);
    });
    define_noted("TestDouble", journal, [this](Batch batch) {
      REQUIRE_EQ(batch.size(), 1u);
      const ListObject& list = batch[0].dict.find(kData)->as_list();
      gathered.push_back(list.size());
      items.push_back(batch[0].items);
      std::vector<Value> doubled;
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list.at(i).as_int() == 99) throw Error(ErrorCode::kRequest, "no 99");
        doubled.emplace_back(list.at(i).as_int() * 2);
      }
      if (list.at(0).as_int() != 55) answer(batch[0], make_list(std::move(doubled)));
    }, {2, 4});
    define_noted("TestScatter", journal, [](Batch batch) {
      for (Request* request : batch) {
        const Value part =
            request->dict.find(kData)->as_list().at(static_cast<std::size_t>(request->dict.find("place")->as_int()));
        if (part.as_int() == 14) request->fail(Error(ErrorCode::kRequest, "no half of 14"));
        answer(*request, part);
      }
    });
  }
};

constexpr const char* kTrio = "CatSplit[TestGather,TestDouble,TestScatter]";

}  // namespace

TEST_CASE("a gathered batch runs once, and each request gets its part") {
  Trio trio;
  TestPipe pipe({{"backend", kTrio}, {"min", 1}});
  CHECK(trio.journal == Journal{"TestDouble", "TestGather", "TestScatter"});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1, 2, 3}))), "2, 4, 6");
  CHECK(trio.gathered == std::vector<std::size_t>{3});
}

TEST_CASE("the range of CatSplit is that of what runs on the gathered batch, in items") {
  Trio trio;
  CHECK_THROWS_WITH_AS(TestPipe({{"backend", kTrio}, {"max", 5}}),
                       "max is 5; the backend of node \"n\" takes at most 4", Error);
  TestPipe pipe({{"backend", kTrio}});
  std::vector<Dict> dicts = requests_of({1, 2, 3});
  for (Dict& dict : dicts) dict.enter("request_size", Value(2));
  dicts.pop_back();
  CHECK_EQ(outcomes_of(pipe.call_many(std::move(dicts))), "2, 4");
  CHECK(trio.items == std::vector<std::size_t>{4});
  CHECK_EQ(pipe.call(Value(1)).message, "node \"n\" takes at least 2 items; only 1 arrived within batching_timeout");
}

TEST_CASE("a request that fails in gather or scatter fails alone") {
  Trio trio;
  TestPipe pipe({{"backend", kTrio}, {"min", 1}});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1, 13, 7, 3}))), "2, no 13, no half of 14, 6");
  CHECK(trio.gathered == std::vector<std::size_t>{3});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({13, 13}))), "no 13, no 13");
  CHECK(trio.gathered.size() == 1);  // nothing was left to run on
}

TEST_CASE("a failure of the gathered batch fails all of it, and each request is tried again alone") {
  Trio trio;
  TestPipe pipe({{"backend", kTrio}, {"min", 1}});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1, 99, 3}))), "2, no 99, 6");
  CHECK(trio.gathered == std::vector<std::size_t>{3, 1, 1, 1});
  TestPipe strict({{"backend", kTrio}, {"min", 1}, {"on_batch_error", "fail"}});
  CHECK_EQ(outcomes_of(strict.call_many(requests_of({1, 99, 3}))), "no 99, no 99, no 99");
  const std::vector<CallResult> silent = strict.call_many(requests_of({55, 1}));
  CHECK_EQ(outcomes_of(silent), "TestDouble left no `result`, TestDouble left no `result`");
  CHECK(silent[1].code == ErrorCode::kNoResult);
}

TEST_CASE("With lends its second item to the first; its range is what both take") {
  class Borrows final : public Backend {
    void forward_(Batch) override { throw Error(ErrorCode::kInternal, "it has to be lent something"); }
    void forward_with_dep_(Batch batch, Backend& lent) override {
      lent.forward(batch);
      for (Request* request : batch) result_to_data(*request, lent.label());
      lent.forward(batch);
    }
    Range range_() const override { return {1, 3}; }
  };
  BackendClass cls;
  cls.name = "TestBorrows";
  cls.create = [] { return std::make_shared<Borrows>(); };
  Registry::instance().define(std::make_shared<BackendClass>(std::move(cls)));
  define("TestAddOne", [](Batch batch, const Params&) { add(batch, 1); });
  TestPipe pipe({{"backend", "With[TestBorrows,TestAddOne]"}});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1, 2, 3, 4}))), "3, 4, 5, 6");
  CHECK_THROWS_WITH_AS(TestPipe({{"backend", "With[TestBorrows,TestAddOne]"}, {"max", 4}}),
                       "max is 4; the backend of node \"n\" takes at most 3", Error);
  CHECK_THROWS_WITH_AS(TestPipe({{"backend", "With[TestAddOne,TestBorrows]"}, {"max", 4}}),
                       "max is 4; the backend of node \"n\" takes at most 3", Error);
  TestPipe deaf({{"backend", "With[TestAddOne,TestBorrows]"}});
  CHECK_EQ(deaf.call(Value(1)).message, "TestAddOne has no forward_with_dep");
}

namespace {

const Event& event_of(const CallResult& made) { return *static_cast<const Event*>(made.dict.find("reply")->object()); }

PipeConfig reposting(const char* target) {
  PipeConfig config;
  config.nodes = {{"a", {{"backend", "Repost[node.z, reply]"}, {"max", 8}}}, {"z", {{"backend", target}, {"max", 8}}}};
  config.dag_entrypoint = "Forward[node.a]";
  return config;
}

}  // namespace

TEST_CASE("a reposted copy has the keys of the request and an outcome of its own") {
  define("TestAnswersAndWrites", [](Batch batch, const Params&) {
    for (Request* request : batch) {
      if (number(*request) == 13) request->fail(Error(ErrorCode::kRequest, "no 13"));
      if (number(*request) == 14) continue;
      answer(*request, Value(number(*request) + request->dict.find("more")->as_int()));
      request->dict.set("written", Value(true));
    }
  });
  TestPipe pipe(reposting("TestAnswersAndWrites"));
  std::vector<Dict> dicts = requests_of({1, 13, 14});
  for (Dict& dict : dicts) dict.enter("more", Value(100));
  dicts.emplace_back();  // has no `data`: fails, and nothing is posted for it
  const std::vector<CallResult> outcomes = pipe.call_many(std::move(dicts));
  CHECK_EQ(outcomes_of(outcomes), "1, 13, 14, the request has no `data`");
  for (std::size_t i = 0; i < 3; ++i) {
    event_of(outcomes[i]).wait();
    CHECK_FALSE(outcomes[i].dict.contains("written"));
  }
  CHECK_EQ(event_of(outcomes[0]).value().as_int(), 101);
  CHECK_EQ(event_of(outcomes[1]).error()->message(), "no 13");
  CHECK(event_of(outcomes[2]).error()->code() == ErrorCode::kNoResult);
  CHECK_EQ(event_of(outcomes[2]).error()->message(), "the reposted request has no `result`");
  CHECK_EQ(pipe->stats().at("z").submitted.load(), 3u);
}

TEST_CASE("a request that reposts does not wait for the copy") {
  const Gated gated("TestGated");
  TestPipe pipe(reposting("TestGated"));
  const CallResult made = pipe.call(Value(1));
  CHECK_EQ(made.number(), 1);
  gated.gate->arrived.wait_for(1);
  CHECK_FALSE(event_of(made).done());
  gated.gate->open();
  event_of(made).wait();
  CHECK_EQ(event_of(made).value().as_int(), 101);
}

TEST_CASE("a reposted copy has the deadline of its request") {
  define("TestHasDeadline", [](Batch batch, const Params&) {
    for (Request* request : batch) answer(*request, Value(request->deadline != kNever));
  });
  TestPipe pipe(reposting("TestHasDeadline"));
  for (const bool hurried : {false, true}) {
    Dict dict = request_of(Value(1));
    if (hurried) dict.enter("timeout", Value("1h"));
    const CallResult made = pipe.call(std::move(dict));
    event_of(made).wait();
    CHECK_EQ(event_of(made).value().as_bool(), hurried);
  }
}

TEST_CASE("a copy that is refused says so in its event") {
  const Gated gated("TestGated");
  PipeConfig config = reposting("TestGated");
  config.nodes[1].keys.emplace_back("max_queue_size", 1);
  config.nodes[1].keys.emplace_back("on_full", "reject");
  TestPipe pipe(config);
  const CallResult running = pipe.call(Value(1));
  gated.gate->arrived.wait_for(1);
  const CallResult waiting = pipe.call(Value(2));
  const CallResult refused = pipe.call(Value(3));
  event_of(refused).wait();
  CHECK(event_of(refused).error()->code() == ErrorCode::kQueueFull);
  CHECK_EQ(refused.number(), 3);
  gated.gate->open();
  event_of(running).wait();
  event_of(waiting).wait();
  CHECK_FALSE(event_of(waiting).error());
}

TEST_CASE("the request that represents a batch has the rows of each request, also of a CatSplit inside another one") {
  Journal journal;
  std::vector<std::vector<std::int64_t>> seen;
  define_noted("TestFirst", journal, [](Batch batch) {
    for (Request* request : batch) answer(*request, Value(1));
  });
  define_noted("TestRows", journal, [&](Batch batch) {
    std::vector<std::int64_t> rows;
    if (const Value* known = batch[0].dict.find("tensor_rows"))
      for (std::size_t i = 0; i < known->as_list().size(); ++i) rows.push_back(known->as_list().at(i).as_int());
    seen.push_back(rows);
    answer(batch[0], Value(1));
  }, {1, 8});
  std::vector<Dict> dicts = requests_of({1, 2});
  dicts[1].enter("request_size", Value(3));
  for (const char* nested : {"TestRows", "CatSplit[TestFirst,TestRows,TestFirst]"}) {
    TestPipe pipe({{"backend", std::string("CatSplit[TestFirst,") + nested + ",TestFirst]"}, {"max", 8}});
    CHECK_EQ(outcomes_of(pipe.call_many(dicts)), "1, 1");
    CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1}))), "1");
  }
  CHECK(seen == std::vector<std::vector<std::int64_t>>{{1, 3}, {}, {1, 3}, {}});
}

TEST_CASE("one request without request_size counts as one item, also if its tensors have several rows") {
  Journal journal;
  std::int64_t size = 0;
  define_noted("TestThree", journal, [](Batch batch) {
    batch[0].dict.enter("tensor_rows", Value(3));
    answer(batch[0], Value(1));
  });
  define_noted("TestOne", journal, [&](Batch batch) {
    size = batch[0].dict.find("request_size")->as_int();
    answer(batch[0], Value(1));
  }, {1, 1});
  TestPipe pipe({{"backend", "CatSplit[TestThree,TestOne,TestThree]"}});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1}))), "1");
  CHECK_EQ(size, 3);
}
