// Helpers of the deadlock tests: scripted nodes, and checks of the requests that would complete a deadlock cycle.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipes.hpp"

namespace hami::testing {

// Nodes whose backends run functions of the test (`acts`, by node). A request above 99 calls no act: its result is its number
// plus one.
class Nodes {
 public:
  using Act = std::function<std::int64_t(std::int64_t)>;

  explicit Nodes(const Traits& traits = own_thread()) {
    define("TestActs", [this](Batch batch, const Params& params) {
      for (Request* request : batch) {
        const std::int64_t data = number(*request);
        answer(*request, Value(data > 99 ? data + 1 : acts.at(params.get<std::string>("node_name"))(data)));
      }
    }, {traits, {}, "node_name: str"});
  }
  ~Nodes() { state = nullptr; }

  // `instances`: each node and its number of instances.
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
  // For acts: calls a node and returns its result, or throws its error.
  std::int64_t call(const std::string& node, std::int64_t number) { return call(one(to(node, number))); }
  std::int64_t call(std::vector<Dict> dicts) {
    const Ref<Call> nested = state->run(std::move(dicts), kNever);
    for (std::size_t i = 0; i < nested->size(); ++i)
      if (nested->error(i)) throw Error(*nested->error(i));
    return outcome(*nested).number();
  }
  // The same, with a second request to `last`, the last node of the pipe: it starts once the first request is queued.
  std::int64_t call_and_signal(const std::string& node, std::int64_t number, const std::string& last) {
    std::vector<Dict> dicts = one(to(node, number));
    dicts.push_back(to(last, 1));
    return call(std::move(dicts));
  }
  TestPipe::Pending submit(const std::string& node, std::int64_t number) { return pipe->submit(to(node, number)); }

  std::map<std::string, Act> acts;
  std::shared_ptr<PipeState> state;
  std::unique_ptr<TestPipe> pipe;
};

inline void check_deadlock(const CallResult& refused, const std::string& path) {
  CHECK(refused.code == ErrorCode::kReentrantCall);
  CHECK_EQ(refused.message, "nested calls would deadlock: " + path +
                                "; every instance of these nodes waits for the next one; give a node more instances "
                                "(instance_num), give the calls a timeout, or call in another order");
}

// Checks that one of several requests failed with the deadlock error and that the others succeeded.
inline void check_one_refused(std::vector<TestPipe::Pending>& pending) {
  int refused = 0;
  for (TestPipe::Pending& one : pending) {
    const CallResult ended = one.wait();
    if (!ended.good) CHECK(ended.code == ErrorCode::kReentrantCall);
    refused += !ended.good;
  }
  CHECK_EQ(refused, 1);
}

}  // namespace hami::testing
