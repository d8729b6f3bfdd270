// HasKey, NotHasKey and Filter: run an item on some requests only, decided by a key or by a backend. Skip ends the others.

#include <memory>

#include "backend/api.hpp"
#include "container/forwarding.hpp"
#include "container/sequential.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

// Without a backend for the others, their `result` is `data`.
void forward_each(const std::vector<Request*>& chosen, Backend& run, const std::vector<Request*>& other,
                  Backend* otherwise) {
  if (!chosen.empty()) run.forward(Batch(chosen));
  if (other.empty()) return;
  if (otherwise)
    otherwise->forward(Batch(other));
  else
    set_result_to_data(Batch(other));
}

// HasKey(k)[A,B]: A on requests that have the key, B (or nothing) on the others. NotHasKey(k)[A] is the opposite.
class KeyDecision final : public Backend {
 public:
  explicit KeyDecision(bool wanted) : wanted_(wanted) {}

 private:
  void init_(Init& init) override {
    key_ = init.params().get<std::string>("key");
    chosen_ = init.make(init.items()[0]);
    if (init.items().size() > 1) other_ = init.make(init.items()[1]);
  }

  void forward_(Batch batch) override {
    std::vector<Request*> chosen;
    std::vector<Request*> other;
    for (Request* request : batch) (request->dict.contains(key_) == wanted_ ? chosen : other).push_back(request);
    forward_each(chosen, *chosen_, other, other_.get());
  }

  Range range_() const override { return other_ ? narrowest({chosen_->range(), other_->range()}) : chosen_->range(); }

  const bool wanted_;
  std::string key_;
  BackendPtr chosen_;
  BackendPtr other_;
};

// Filter[F,A,B]: A on requests for which F is true, B (or nothing) on the others. F runs on a copy of the request, so that they
// do not see the keys that F sets.
class Filter final : public Backend {
 private:
  void init_(Init& init) override {
    decide_ = init.make(init.items()[0]);
    chosen_ = init.make(init.items()[1]);
    if (init.items().size() > 2) other_ = init.make(init.items()[2]);
  }

  void forward_(Batch batch) override {
    std::vector<Ref<Request>> copies;
    std::vector<Request*> undecided;
    for (Request* request : batch) {
      copies.push_back(request->branch({}, 0));
      undecided.push_back(copies.back().get());
    }
    decide_->forward(Batch(undecided));
    std::vector<Request*> chosen;
    std::vector<Request*> other;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Request& decided = *undecided[i];
      const Value* verdict = decided.dict.find(kResult);
      if (decided.error)
        batch[i].fail(*decided.error);
      else if (!verdict)
        batch[i].fail(Error(ErrorCode::kNoResult, decide_->label() + " left no `result`"));
      else if (verdict->kind() != Kind::kBool)
        batch[i].fail(Error(ErrorCode::kDataType,
                            "Filter takes a bool from " + decide_->label() + ", got " + kind_name(verdict->kind())));
      else
        (verdict->as_bool() ? chosen : other).push_back(&batch[i]);
    }
    forward_each(chosen, *chosen_, other, other_.get());
  }

  Range range_() const override {
    return other_ ? narrowest({decide_->range(), chosen_->range(), other_->range()})
                  : narrowest({decide_->range(), chosen_->range()});
  }

  BackendPtr decide_;
  BackendPtr chosen_;
  BackendPtr other_;
};

class Skip final : public Backend {
 private:
  void forward_(Batch batch) override {
    for (Request* request : batch)
      request->fail(
          Error(ErrorCode::kSkipped,
                "the request was skipped and has no `result`; to give it one, set `otherwise` to \"pass\" or to "
                "an expression"));
  }
};

void add_key_decision(Registry& registry, const char* name, bool wanted, std::size_t max_items, const char* doc,
                      const char* range) {
  BackendClass cls;
  cls.name = name;
  cls.doc = doc;
  cls.range = range;
  cls.params = parse_param_specs("key: str 'the key that decides'");
  cls.brackets = {true, {Phase{1, max_items}}};
  cls.traits.non_blocking = true;
  cls.traits.lightweight = true;
  cls.create = [wanted] { return std::make_shared<KeyDecision>(wanted); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace

[[gnu::cold]] void register_decisions(Registry& registry) {
  add_key_decision(registry, "HasKey", true, 2,
                   "Runs its first item on requests that have the key, its second on the others.\n"
                   "Without a second item, `result` is `data` for these.",
                   kNarrowest);
  add_key_decision(registry, "NotHasKey", false, 1,
                   "Runs its item on requests that do not have the key; for the others `result` is `data`.",
                   "as its item");

  BackendClass filter;
  filter.name = "Filter";
  filter.doc =
      "Runs its second item on requests for which the `result` of the first is true, its third on the others.\n"
      "The first runs on a copy and sets a bool. Without a third item, `result` is `data` for the others.";
  filter.range = kNarrowest;
  filter.brackets = {true, {Phase{2, 3}}};
  filter.wraps_nodes_with = "filter";
  filter.wraps_nodes_otherwise = "otherwise";
  filter.traits.non_blocking = true;
  filter.traits.lightweight = true;
  filter.create = [] { return std::make_shared<Filter>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(filter)));

  BackendClass skip;
  skip.name = "Skip";
  skip.doc =
      "Ends a request without a result: the nodes that follow in the graph do not run.\n"
      "A node whose `map` accepts skipped predecessors runs with what the others deliver.";
  skip.traits.thread = ThreadMode::kConcurrent;
  skip.traits.non_blocking = true;
  skip.traits.lightweight = true;
  skip.create = [] { return std::make_shared<Skip>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(skip)));
}

}  // namespace hami
