// CatSplit[cat,infer,split] and With[A,B]: items that cooperate on one batch.

#include <algorithm>
#include <memory>

#include "backend/api.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

// The number of rows of a request in the merged value.
std::size_t count_rows(const Request& request) {
  const Value* rows = request.dict.find(kTensorRows);
  if (!rows || rows->kind() != Kind::kInt) return request.items;
  return rows->as_int() < 0 ? 1 : static_cast<std::size_t>(rows->as_int());
}

// `cat` sets the same merged `result` in every request of the batch. `infer` runs once on a request that represents all of
// them. Its `result` becomes `data` of each, from which `split` takes the part of each request.
class CatSplit final : public Backend {
 private:
  void init_(Init& init) override {
    infer_ = init.make(init.items()[1]);
    cat_ = init.make(init.items()[0]);
    split_ = init.make(init.items()[2]);
  }

  void forward_(Batch batch) override {
    cat_->forward(batch);
    std::vector<Request*> alive;
    for (Request* request : batch)
      if (request->alive()) alive.push_back(request);
    if (alive.empty()) return;
    const Value merged_result = infer(Batch(alive));
    for (Request* request : alive) {
      request->dict.set(kData, merged_result);
      request->dict.erase(kResult);
    }
    split_->forward(Batch(alive));
  }

  // Runs the second item on one request that represents the batch. An error applies to all of its requests.
  Value infer(Batch batch) {
    const Ref<Request> all = make_counted<Request>();
    all->dict = batch[0].dict;
    if (!result_to_data(*all, cat_->label())) throw *all->error;
    all->items = 0;
    std::vector<Value> rows;
    for (const Request* request : batch) {
      add_rows(rows, *request);
      all->items += count_rows(*request);
    }
    all->dict.erase(kTensorRows);
    if (rows.size() > 1) all->dict.enter(std::string(kTensorRows), make_list(std::move(rows)));
    all->dict.set(kRequestSize, static_cast<std::int64_t>(all->items));
    if (batch.size() == 1) all->items = batch[0].items;  // an engine of range 1 takes all rows of one request
    merge_urgency(*all, batch);
    Request* one = all.get();
    infer_->forward(Batch(&one, 1));
    if (!all->error && !all->dict.contains(kResult))
      all->fail(Error(ErrorCode::kNoResult, infer_->label() + " left no `result`"));
    if (all->error) throw *all->error;
    return *all->dict.find(kResult);
  }

  // A request that represents others, of a CatSplit around this one, has the rows of each.
  static void add_rows(std::vector<Value>& rows, const Request& request) {
    const Value* known = request.dict.find(kTensorRows);
    if (known == nullptr || known->kind() != Kind::kList) {
      rows.emplace_back(static_cast<std::int64_t>(count_rows(request)));
      return;
    }
    for (std::size_t i = 0; i < known->as_list().size(); ++i) rows.push_back(known->as_list().at(i));
  }

  // `all` gets the latest deadline and the highest priority of the batch. It is cancelled only when all requests are.
  static void merge_urgency(Request& all, Batch batch) {
    all.deadline = 0;
    for (Request* request : batch) {
      all.deadline = std::max(all.deadline, request->deadline);
      all.priority = std::max(all.priority, request->priority);
      all.merged_from.emplace_back(request);
    }
    if (all.priority > 0) all.dict.set(kPriority, std::int64_t{all.priority});
  }

  Range range_() const override { return infer_->range(); }

  BackendPtr cat_;
  BackendPtr infer_;
  BackendPtr split_;
};

class With final : public Backend {
 private:
  void init_(Init& init) override {
    run_ = init.make(init.items()[0]);
    dependency_ = init.make(init.items()[1]);
  }
  void forward_(Batch batch) override { run_->forward_with_dep(batch, *dependency_); }
  Range range_() const override { return narrowest({run_->range(), dependency_->range()}); }

  BackendPtr run_;
  BackendPtr dependency_;
};

}  // namespace

[[gnu::cold]] void register_cat_split(Registry& registry) {
  BackendClass cat_split;
  cat_split.name = "CatSplit";
  cat_split.doc =
      "Merges a batch with its first item, runs the second once, and splits the result with the third.\n"
      "The first sets the same `result` in all requests. The second runs on one request that represents all of them; its\n"
      "`result` becomes `data` of each, from which the third takes the part of each request. Initialised in the order second,\n"
      "first, third. An error of the second fails all requests.";
  cat_split.range = "as its second item";
  cat_split.brackets = {true, {Phase{3, 3}}};
  cat_split.traits.lightweight = true;
  cat_split.create = [] { return std::make_shared<CatSplit>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cat_split)));

  BackendClass with;
  with.name = "With";
  with.doc = "Calls `forward_with_dep` of its first item with the second.";
  with.range = kNarrowest;
  with.brackets = {true, {Phase{2, 2}}};
  with.create = [] { return std::make_shared<With>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(with)));
}

}  // namespace hami
