// NativeBackend: one instance of a class of a native plugin.

#include <array>
#include <memory>
#include <optional>

#include "backend/api.hpp"
#include "plugin/handles.hpp"
#include "plugin/library.hpp"
#include "plugin/plugin_call.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

// The requests of a batch as handles, for one call. Small batches need no allocation.
class Items {
 public:
  explicit Items(Batch batch) : size_(batch.size()) {
    const bool is_small = size_ <= kSmallSize;
    if (!is_small) {
      large_items_.resize(size_);
      large_pointers_.resize(size_);
    }
    hami_dict* const items = is_small ? small_items_.data() : large_items_.data();
    pointers_ = is_small ? small_pointers_.data() : large_pointers_.data();
    for (std::size_t i = 0; i < size_; ++i) {
      items[i] = {&batch[i].dict, &batch[i]};
      pointers_[i] = &items[i];
    }
  }
  hami_dict* const* data() const noexcept { return pointers_; }
  std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kSmallSize = 8;

  std::size_t size_;
  hami_dict** pointers_;
  std::array<hami_dict, kSmallSize> small_items_;
  std::array<hami_dict*, kSmallSize> small_pointers_;
  std::vector<hami_dict> large_items_;
  std::vector<hami_dict*> large_pointers_;
};

class NativeBackend final : public Backend {
 public:
  NativeBackend(const hami_backend_class& cls, std::string origin) : cls_(cls), origin_(std::move(origin)) {}
  ~NativeBackend() override {
    if (created_) destroy();
  }

 private:
  void init_(Init& init) override {
    fill_context(init);
    make_children(init);
    Dict params;
    for (const auto& [name, value] : init.params()) params.set(name, value);
    const hami_dict params_handle{&params, nullptr};
    std::vector<hami_backend*> handles;
    for (const auto& child : children_) handles.push_back(child.get());
    const GlobalLock lock = lock_language();
    hami_error* const error = call_plugin("create", origin_.c_str(), [&] {
      return cls_.create(&context_, &params_handle, &context_.options, handles.data(), handles.size(), &self_);
    });
    context_.init = nullptr;
    throw_if(error);
    created_ = true;
    set_range();
  }

  void fill_context(Init& init) {
    context_.node = init.node();
    context_.label = init.label();
    if (init.instance()) context_.instance = static_cast<std::int64_t>(*init.instance());
    context_.pipe = &init.context();
    context_.counters = &init.context().resources.counters(init.node());
    context_.shared_options = init.shared_options();
    context_.options = {context_.shared_options.get(), nullptr};
    context_.init = &init;
  }

  // Calls a function of the class and throws its error.
  template <class Function>
  void call(const char* name, const Function& function) {
    throw_if(call_plugin(name, origin_.c_str(), function));
  }

  void destroy() {
    const GlobalLock lock = lock_language();
    try {
      call_plugin("destroy", origin_.c_str(), [&] { cls_.destroy(self_); });
    } catch (const Error& error) {
      log(context_.node, error.message());
    }
  }

  // Python's GIL, if the class needs it for its calls.
  GlobalLock lock_language() const { return {label(), (cls_.flags & HAMI_NEEDS_GIL) != 0}; }

  void make_children(Init& init) {
    if (!init.has_brackets()) return;
    for (const PlanItem& item : init.items()) children_.push_back(std::make_unique<hami_backend>(init.make(item)));
  }

  void set_range() {
    if (const std::optional<Range> declared = declared_range(cls_)) {
      range_value_ = *declared;
      return;
    }
    if (!cls_.range) {
      std::vector<Range> ranges;
      for (const auto& child : children_) ranges.push_back(child->backend->range());
      range_value_ = narrowest(ranges);
      return;
    }
    std::uint64_t min = 1;
    std::uint64_t max = 0;
    call("range", [&] { return cls_.range(self_, &min, &max); });
    range_value_ = range_of_abi(min, max);
    if (min < 1 || min > range_value_.max)
      throw Error(ErrorCode::kConfig, label() + " declares the range min=" + std::to_string(min) +
                                          ", max=" + std::to_string(max) +
                                          "; min must be at least 1, and max at least min, or 0 for no limit");
  }

  void forward_(Batch batch) override {
    HAMI_ASSERT(created_);
    const Items items(batch);
    const GlobalLock lock = lock_language();
    call("forward", [&] { return cls_.forward(self_, &context_, items.data(), items.size()); });
    add_backend_note(batch);
  }

  void forward_with_dep_(Batch batch, Backend& dependency) override {
    if (!cls_.forward_with_dep) return Backend::forward_with_dep_(batch, dependency);
    const Items items(batch);
    hami_backend borrowed(BackendPtr(&dependency, [](Backend*) {}));  // not owned; exists for the call only
    const GlobalLock lock = lock_language();
    call("forward_with_dep",
         [&] { return cls_.forward_with_dep(self_, &context_, items.data(), items.size(), &borrowed); });
    add_backend_note(batch);
  }

  void inject_dependency_(const BackendPtr& dependency) override {
    if (!cls_.inject_dependency) return Backend::inject_dependency_(dependency);
    injected_.push_back(std::make_unique<hami_backend>(dependency));
    const GlobalLock lock = lock_language();
    call("inject_dependency", [&] { return cls_.inject_dependency(self_, injected_.back().get()); });
  }

  // The planner absorbs only classes of the same plugin. No data moves to a device between two backends that are one.
  void absorb_(BackendPtr next) override {
    const BackendPtr host = for_cpu_memory(next);
    auto* const native = dynamic_cast<NativeBackend*>(host.get());
    if (!native || !cls_.absorb) return Backend::absorb_(std::move(next));
    {
      const GlobalLock lock = lock_language();
      call("absorb", [&] { return cls_.absorb(self_, native->self_); });
    }
    range_value_ = narrowest({range_value_, native->range_value_});
    absorbed_.push_back(std::move(next));
  }

  Range range_() const override { return range_value_; }

  CostFunction request_cost_() const override {
    if (!cls_.request_cost) return {};
    return [this](Batch batch) {
      const GlobalLock lock = lock_language();
      for (Request* request : batch) {
        try {
          request->cost = cost_of(*request);
        } catch (...) {
          request->fail(current_error());
        }
      }
    };
  }

  double cost_of(Request& request) const {
    const hami_dict item{&request.dict, &request};
    double cost = 0;
    throw_if(call_plugin("request_cost", origin_.c_str(),
                         [&] { return cls_.request_cost(self_, &context_, &item, &cost); }));
    return checked_cost(Value(cost), "request_cost of " + label() + " must be a positive number");
  }

  const hami_backend_class cls_;
  const std::string origin_;
  mutable hami_context context_;
  std::vector<std::unique_ptr<hami_backend>> children_;
  std::vector<std::unique_ptr<hami_backend>> injected_;
  std::vector<BackendPtr> absorbed_;
  void* self_ = nullptr;
  bool created_ = false;
  Range range_value_;
};

}  // namespace

BackendPtr make_native_backend(const hami_backend_class& cls, std::string origin) {
  return std::make_shared<NativeBackend>(cls, std::move(origin));
}

}  // namespace hami
