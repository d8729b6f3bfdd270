// StateFul[X,…]: DI[X,…] with a state for each `req_id`, which X reads and writes under `state`.
#include <any>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "container/forwarding.hpp"
#include "hami/sdk/request_store.hpp"

namespace hami {
namespace {

constexpr std::string_view kReqId = "req_id";
constexpr std::string_view kState = "state";

StoreId id_of(const Dict& dict) {
  const Value* id = dict.find(kReqId);
  if (!id) throw Error(ErrorCode::kRequest, "the request has no `req_id`, which selects its state");
  if (id->kind() == Kind::kInt) return StoreId(id->as_int());
  if (id->kind() == Kind::kStr) return StoreId(id->as_text());
  throw Error(ErrorCode::kDataType, std::string("req_id must be a str or an int, got ") + kind_name(id->kind()));
}

bool is_finished(const Dict& dict) {
  const Value* finish = dict.find("finish");
  return finish && finish->kind() == Kind::kBool && finish->as_bool();
}

// Attached to a request (`owner`) while the target runs it; keeps the previous owner.
struct Visit final : Counted {
  Visit(StoreId visitor, Request& request)
      : id(std::move(visitor)), sink(std::move(request.sink)), owner(std::move(request.owner)) {}
  StoreId id;
  Ref<CompletionSink> sink;
  Ref<Counted> owner;
};

// Requests of one req_id run in order of arrival, one at a time: each sees the state of the one before it. Other nodes keep
// states of the same ids in the store, and a plugin may remove an id at any time.
class States final : public CompletionSink {
  using Requests = std::deque<Ref<Request>>;

 public:
  States(PipeContext& context, const std::string& node, BackendPtr target, Nanoseconds ttl)
      : store_(context.resources.store()),
        store_ids_(context.resources.store_ids()),
        key_(context.resources.unique("state of node \"" + node + "\"")),
        target_(std::move(target)),
        ttl_(ttl) {}

  void post(Batch batch, InlinePolicy how) {
    forget_old();
    Requests ready;
    std::vector<Request*> refused;
    for (Request* request : batch) {
      try {
        enter(*request, id_of(request->dict), ready);
      } catch (...) {
        request->fail(current_error());
        refused.push_back(request);
      }
    }
    complete_requests(Batch(refused));
    start(std::move(ready), how);
  }

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    Requests next;
    for (std::size_t i = 0; i < count; ++i) leave(*requests[i], next);
    complete_requests(Batch(requests, count));
    if (Starting* here = Starting::innermost; here && here->states == this)
      here->next.insert(here->next.end(), next.begin(), next.end());
    else
      start(std::move(next), InlinePolicy::kNonBlocking);
    return nullptr;
  }

 private:
  struct Kept {
    Value state;
    Nanoseconds touched;
  };

  // On the stack of a thread that starts requests. It also starts the requests that become ready meanwhile, because the target
  // ran the previous ones inline: recursion would need a stack as deep as the queue is long.
  struct Starting {
    explicit Starting(const States* who) noexcept : states(who), outer(std::exchange(innermost, this)) {}
    ~Starting() { innermost = outer; }
    Starting(const Starting&) = delete;
    Starting& operator=(const Starting&) = delete;

    const States* const states;
    Starting* const outer;
    Requests next;
    static thread_local Starting* innermost;
  };

  void enter(Request& request, const StoreId& id, Requests& ready) {
    MutexLock lock(mutex_);
    const auto [waiting, is_first] = turns_.try_emplace(id);
    (is_first ? ready : waiting->second).emplace_back(&request);
  }

  void start(Requests ready, InlinePolicy how) {
    Starting here(this);
    for (; !ready.empty(); ready = std::exchange(here.next, {}), how = InlinePolicy::kNonBlocking) {
      std::vector<Request*> pointers;
      for (const Ref<Request>& request : ready) {
        const StoreId id = id_of(request->dict);
        request->dict.set(kState, load(id));
        request->owner = Ref<Counted>(new Visit(id, *request));
        request->sink = Ref<CompletionSink>(this);
        pointers.push_back(request.get());
      }
      target_->post(Batch(pointers), how);
    }
  }

  void leave(Request& request, Requests& next) noexcept {
    const Ref<Counted> held = request.owner;
    Visit& visit = static_cast<Visit&>(*held);
    if (is_finished(request.dict))
      end(visit.id);
    else if (request.alive())
      keep(visit.id, request.dict);
    request.dict.erase(kState);  // internal to the node
    request.sink = std::move(visit.sink);
    request.owner = std::move(visit.owner);
    MutexLock lock(mutex_);
    const auto waiting = turns_.find(visit.id);
    if (waiting->second.empty()) {
      turns_.erase(waiting);
      return;
    }
    next.push_back(std::move(waiting->second.front()));
    waiting->second.pop_front();
  }

  std::optional<Kept> find(const StoreId& id) const {
    try {
      const std::optional<std::any> kept = store_.get(id, key_);
      return kept ? std::optional(std::any_cast<Kept>(*kept)) : std::nullopt;
    } catch (const RequestStore::NotFound&) {
      return std::nullopt;
    }
  }

  Value load(const StoreId& id) const {
    const std::optional<Kept> kept = store_.contains(id) ? find(id) : std::nullopt;
    return !kept || (ttl_ != kNever && now() - kept->touched > ttl_) ? Value() : kept->state;
  }

  void keep(const StoreId& id, const Dict& dict) {
    const Value* state = dict.find(kState);
    if (!state || state->is_none()) {
      end(id);
      return;
    }
    const Kept kept{*state, now()};
    const std::any before = take(id);  // destroyed without a lock: its destructor may call this class
    try {
      const MutexLock lock(store_ids_);
      begin(id);
      store_.insert(id, key_, kept);
    } catch (const RequestStore::NotFound&) {
      return;
    }
    if (ttl_ == kNever) return;
    MutexLock lock(mutex_);
    touched_.emplace_back(kept.touched, id);
  }

  void begin(const StoreId& id) const {
    try {
      if (!store_.contains(id)) store_.create(id);
    } catch (const RequestStore::AlreadyExists&) {
    }
  }

  std::any take(const StoreId& id) const {
    try {
      return store_.contains(id, key_) ? store_.take(id, key_) : std::any();
    } catch (const RequestStore::NotFound&) {
      return {};
    }
  }

  // Ends the state and returns it, so that the caller destroys it without a lock.
  std::any end(const StoreId& id) {
    std::any state = take(id);
    try {
      const MutexLock lock(store_ids_);
      if (store_.contains(id) && store_.size(id) == 0) store_.remove(id);
    } catch (const RequestStore::NotFound&) {
    }
    return state;
  }

  // Removes states that were not used for `ttl`.
  void forget_old() {
    if (ttl_ == kNever) return;
    const Nanoseconds moment = now();
    std::vector<std::any> old;  // destroyed after the lock: their destructors may call this class
    MutexLock lock(mutex_);
    while (!touched_.empty() && moment - touched_.front().first > ttl_) {
      const auto [touched, id] = std::move(touched_.front());
      touched_.pop_front();
      if (turns_.count(id)) continue;
      if (const std::optional<Kept> kept = find(id); kept && kept->touched == touched) old.push_back(end(id));
    }
  }

  RequestStore& store_;
  Mutex& store_ids_;
  const std::string key_;
  const BackendPtr target_;
  const Nanoseconds ttl_;
  Mutex mutex_;
  std::unordered_map<StoreId, Requests, StoreId::Hash> turns_
      HAMI_GUARDED_BY(mutex_);  // waiting requests of each id that has one running
  std::deque<std::pair<Nanoseconds, StoreId>> touched_
      HAMI_GUARDED_BY(mutex_);  // oldest first; some were used again since
};

thread_local States::Starting* States::Starting::innermost = nullptr;

constexpr const char* kRefusesCopies =
    "they would run requests of one req_id concurrently. Move it out of the backend, before all instances: "
    "node_entrypoint = \"List[InstancesRegister[Reflect[backend]], Register[StateFul[Batching, InstanceDispatcher]]]\"; "
    "or set instance_num = 1";

class StateFul final : public Forwarding {
 public:
  ~StateFul() override {
    states_ = {};
    target_ = nullptr;
    while (!parts_.empty()) parts_.pop_back();
  }

 private:
  void init_(Init& init) override {
    refuse_further_instances(init);
    parts_ = make_injected(init);
    target_ = parts_.front();
    const auto ttl = init.params().get<std::optional<double>>("ttl");
    context_ = init.shared_context();
    states_ = make_counted<States>(*context_, init.node(), target_, ttl ? from_milliseconds(*ttl) : kNever);
  }
  // Each instance would order requests on its own, over states that all of them share. Other instances that serve the queue of a
  // node are only known at this point.
  static void refuse_further_instances(const Init& init) {
    if (init.instance().value_or(0) == 0) return;
    throw Error(ErrorCode::kConfig, "StateFul is part of the backend of node \"" + init.node() +
                                        "\", which has several instances; " + kRefusesCopies);
  }
  void forward_(Batch batch) override { post_and_wait(*this, batch); }
  void post_(Batch batch, InlinePolicy how) override { states_->post(batch, how); }

  std::shared_ptr<PipeContext> context_;
  std::vector<BackendPtr> parts_;
  Ref<States> states_;
};

}  // namespace

void register_stateful(Registry& registry) {
  BackendClass cls;
  cls.name = "StateFul";
  cls.doc =
      "`DI[…]` whose first item reads `state` as written by the previous request with this `req_id`.\n"
      "`req_id` is required; requests of one `req_id` run one at a time. The state ends with a request whose `finish` is true,\n"
      "after `ttl` without a request, or when the pipe closes. It cannot be part of a backend with several instances; put it\n"
      "before the dispatcher: `Register[StateFul[Batching, InstanceDispatcher]]`.";
  cls.range = "as its first item";
  cls.params =
      parse_param_specs("ttl: duration? 'how long a state is kept without a request; None: until the pipe closes'");
  cls.brackets = {true, {Phase{1, Phase::kMany}}};
  cls.refuses_copies = kRefusesCopies;
  cls.create = [] { return std::make_shared<StateFul>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
