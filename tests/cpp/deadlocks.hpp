// Helpers of the deadlock tests: scripted nodes, and a check of the request that would complete a deadlock cycle.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipes.hpp"

namespace hami::testing {

// Nodes whose backends do what a test says. A number above 99 is answered at once with the number plus one.
class Nodes {
 public:
  using Act = std::function<std::int64_t(std::int64_t)>;

  explicit Nodes(const Traits& traits = own_thread()) {
    define("TestActs", [this](Batch batch, const Params& params) {
      for (Request* request : batch) {
        const std::int64_t given = number(*request);
        answer(*request, Value(given > 99 ? given + 1 : acts.at(params.get<std::string>("node_name"))(given)));
      }
    }, {traits, {}, "node_name: str"});
  }
  ~Nodes() { state = nullptr; }

  // `instances` by node, in the order of the nodes.
  void build(const std::vector<std::pair<std::string, std::int64_t>>& instances) {
    PipeConfig config;
    for (const auto& [name, count] : instances)
      config.nodes.push_back({name, {{"backend", "TestActs"}, {"instance_num", count}}});
    build(config);
  }
  void build(const PipeConfig& config) {
    pipe = std::make_unique<TestPipe>(config);
    state = (**pipe).shared_from_this();
  }

  static Dict to(const std::string& node, std::int64_t number) {
    Dict dict = request_of(Value(number));
    dict.enter("node_name", Value(node));
    return dict;
  }
  static std::vector<Dict> one(Dict dict) {
    std::vector<Dict> dicts;
    dicts.push_back(std::move(dict));
    return dicts;
  }
  // What an act does: calls a node, and fails as that fails.
  std::int64_t ask(const std::string& node, std::int64_t number) { return ask(one(to(node, number))); }
  std::int64_t ask(std::vector<Dict> dicts) {
    const Ref<Call> call = state->run(std::move(dicts), kNever);
    for (std::size_t i = 0; i < call->size(); ++i)
      if (call->error(i)) throw Error(*call->error(i));
    return outcome(*call).number();
  }
  // The same, and `told` the last node of the pipe once the call waits for the first.
  std::int64_t ask_and_tell(const std::string& node, std::int64_t number, const std::string& last) {
    std::vector<Dict> dicts = one(to(node, number));
    dicts.push_back(to(last, 1));
    return ask(std::move(dicts));
  }
  TestPipe::Pending submit(const std::string& node, std::int64_t number) { return pipe->submit(to(node, number)); }

  std::map<std::string, Act> acts;
  std::shared_ptr<PipeState> state;
  std::unique_ptr<TestPipe> pipe;
};

inline void check_deadlock(const Outcome& made, const std::string& path) {
  CHECK(made.code == ErrorCode::kReentrantCall);
  CHECK_EQ(made.message, "nested calls would deadlock: " + path +
                             "; every instance of these nodes waits for the next one; give a node more instances "
                             "(instance_num), give the calls a timeout, or call in another order");
}

// Checks that one of several requests failed with the deadlock error and that the others succeeded.
inline void check_one_closed(std::vector<TestPipe::Pending>& pending) {
  int closed = 0;
  for (TestPipe::Pending& one : pending) {
    const Outcome made = one.wait();
    if (!made.good) CHECK(made.code == ErrorCode::kReentrantCall);
    closed += !made.good;
  }
  CHECK_EQ(closed, 1);
}

}  // namespace hami::testing
