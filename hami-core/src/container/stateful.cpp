// StateFul[X,…]: DI[X,…] with a state for each `req_id`, which X finds under `state` and which lasts from call to call.
#include <any>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "container/forwarding.hpp"
#include "hami/sdk/request_store.hpp"

namespace hami {
namespace {

constexpr std::string_view kReqId = "req_id";
constexpr std::string_view kState = "state";

StoreId id_of(const Dict& dict) {
  const Value* id = dict.find(kReqId);
  if (!id) throw Error(ErrorCode::kRequest, "the request has no `req_id`, by which its state is kept");
  if (id->kind() == Kind::kInt) return StoreId(id->as_int());
  if (id->kind() == Kind::kStr) return StoreId(id->as_text());
  throw Error(ErrorCode::kDataType, std::string("req_id must be a str or an int, got ") + kind_name(id->kind()));
}

bool is_finished(const Dict& dict) {
  const Value* finish = dict.find("finish");
  return finish && finish->kind() == Kind::kBool && finish->as_bool();
}

// What a request has with it while it is at the target: under `owner`, and what was there before.
struct Visit final : Counted {
  Visit(StoreId visitor, Request& request)
      : id(std::move(visitor)), sink(std::move(request.sink)), owner(std::move(request.owner)) {}
  StoreId id;
  Ref<Sink> sink;
  Ref<Counted> owner;
};

// Requests of one req_id run one after the other, in the order they came: each sees what the one before it left.
class States final : public Sink {
 public:
  States(RequestStore& store, const std::string& node, BackendPtr target, Nanoseconds ttl)
      : store_(store), key_("state of node \"" + node + "\""), target_(std::move(target)), ttl_(ttl) {}

  void post(Batch batch, Inline how) {
    forget_old();
    std::vector<Ref<Request>> ready;
    std::vector<Request*> refused;
    for (Request* request : batch) {
      try {
        enter(*request, id_of(request->dict), ready);
      } catch (...) {
        request->fail(current_error());
        refused.push_back(request);
      }
    }
    finish(Batch(refused));
    start(ready, how);
  }

  void done(Request* const* requests, std::size_t count) noexcept override {
    std::vector<Ref<Request>> next;
    for (std::size_t i = 0; i < count; ++i) leave(*requests[i], next);
    finish(Batch(requests, count));
    start(next, Inline::kQuick);
  }

 private:
  struct Kept {
    Value state;
    Nanoseconds touched;
  };

  void enter(Request& request, const StoreId& id, std::vector<Ref<Request>>& ready) {
    std::lock_guard lock(mutex_);
    const auto [waiting, is_first] = turns_.try_emplace(id);
    (is_first ? ready : waiting->second).emplace_back(&request);
  }

  void start(const std::vector<Ref<Request>>& ready, Inline how) {
    if (ready.empty()) return;
    std::vector<Request*> pointers;
    for (const Ref<Request>& request : ready) {
      const StoreId id = id_of(request->dict);
      request->dict.set(kState, load(id));
      request->owner = Ref<Counted>(new Visit(id, *request));
      request->sink = Ref<Sink>(this);
      pointers.push_back(request.get());
    }
    target_->post(Batch(pointers), how);
  }

  void leave(Request& request, std::vector<Ref<Request>>& next) noexcept {
    const Ref<Counted> held = request.owner;
    Visit& visit = static_cast<Visit&>(*held);
    if (is_finished(request.dict))
      end(visit.id);
    else if (request.alive())
      keep(visit.id, request.dict);
    request.dict.erase(kState);  // it is the node's, not the caller's
    request.sink = std::move(visit.sink);
    request.owner = std::move(visit.owner);
    std::lock_guard lock(mutex_);
    const auto waiting = turns_.find(visit.id);
    if (waiting->second.empty()) {
      turns_.erase(waiting);
      return;
    }
    next.push_back(std::move(waiting->second.front()));
    waiting->second.erase(waiting->second.begin());
  }

  Value load(const StoreId& id) const {
    if (!store_.contains(id, key_)) return {};
    const Kept kept = std::any_cast<Kept>(store_.at(id, key_));
    return ttl_ != kNever && now() - kept.touched > ttl_ ? Value() : kept.state;
  }

  void keep(const StoreId& id, const Dict& dict) {
    const Value* state = dict.find(kState);
    if (!state || state->is_none()) return end(id);
    const Kept kept{*state, now()};
    if (!store_.contains(id)) store_.create(id);  // requests of one id have turns: nobody else creates it
    store_.insert_or_assign(id, key_, kept);
    if (ttl_ == kNever) return;
    std::lock_guard lock(mutex_);
    touched_.emplace_back(kept.touched, id);
  }

  void end(const StoreId& id) {
    if (!store_.contains(id)) return;
    store_.erase(id, key_);
    if (store_.size(id) == 0) store_.remove(id);
  }

  // States whose ids never came back.
  void forget_old() {
    if (ttl_ == kNever) return;
    const Nanoseconds moment = now();
    std::vector<std::any> old;  // go after the lock: their end may run code that comes back here
    std::lock_guard lock(mutex_);
    while (!touched_.empty() && moment - touched_.front().first > ttl_) {
      const auto [touched, id] = std::move(touched_.front());
      touched_.pop_front();
      if (turns_.count(id) || !store_.contains(id, key_)) continue;
      if (std::any_cast<Kept>(store_.at(id, key_)).touched != touched) continue;
      old.push_back(store_.take(id, key_));
      if (store_.size(id) == 0) store_.remove(id);
    }
  }

  RequestStore& store_;
  const std::string key_;
  const BackendPtr target_;
  const Nanoseconds ttl_;
  std::mutex mutex_;  // guards all below
  std::unordered_map<StoreId, std::vector<Ref<Request>>, StoreId::Hash> turns_;  // who waits, by id that has one running
  std::deque<std::pair<Nanoseconds, StoreId>> touched_;                          // oldest first; some touched again since
};

class StateFul final : public Forwarding {
 public:
  bool is_asynchronous() const noexcept override { return true; }
  ~StateFul() override {
    states_ = {};
    target_ = nullptr;
    while (!parts_.empty()) parts_.pop_back();
  }

 private:
  void init_(Init& init) override {
    parts_ = make_injected(init);
    target_ = parts_.front();
    const auto ttl = init.params().get<std::optional<double>>("ttl");
    context_ = init.shared_context();
    states_ = make_counted<States>(context_->store(), init.node(), target_, ttl ? from_milliseconds(*ttl) : kNever);
  }
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, Inline how) override { states_->post(batch, how); }

  std::shared_ptr<PipeContext> context_;
  std::vector<BackendPtr> parts_;
  Ref<States> states_;
};

}  // namespace

void register_stateful(Registry& registry) {
  BackendClass cls;
  cls.name = "StateFul";
  cls.doc =
      "`DI[…]` whose first item finds under `state` what the last request with the same `req_id` left there.\n"
      "`req_id` is required; requests of one run one after the other. The state ends with a request whose `finish` is true,\n"
      "after `ttl` without a request, or when the pipe closes.";
  cls.range = "that of its first item";
  cls.params = parse_param_specs("ttl: duration? 'how long a state is kept without a request; None: as long as the pipe'");
  cls.brackets = {true, {Phase{1, Phase::kMany}}};
  cls.create = [] { return std::make_shared<StateFul>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
