// A request as a Python backend sees it: a mapping over the core's dict, shown lazily, valid for the time of the call.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "gil.hpp"
#include "request/request.hpp"

namespace hami::bind {

// ThreadMode of a backend may use one view at once, and may come when the call is over.
class DictView {
 public:
  DictView() noexcept : dict_(nullptr), mutex_(own_mutex_) {}
  // Options, which several backends see, each through a view of its own.
  explicit DictView(std::shared_ptr<Dict> dict) noexcept : dict_(dict.get()), kept_(std::move(dict)), mutex_(options_mutex_) {}
  virtual ~DictView() = default;
  DictView(const DictView&) = delete;
  DictView& operator=(const DictView&) = delete;

  // use(dict), by one thread at a time; throws once the call is over. What it takes out it returns, to die afterwards.
  template <class Use>
  auto with(Use use) const {
    const std::lock_guard lock(mutex_);
    return use(dict());
  }

 protected:
  void point_to(Dict* dict) noexcept {
    const std::lock_guard lock(mutex_);
    dict_ = dict;
  }

 private:
  Dict& dict() const;

  Dict* dict_;
  std::shared_ptr<Dict> kept_;  // null: the dict is borrowed for the time of a call
  FreeThreadedMutex own_mutex_;
  FreeThreadedMutex& mutex_;  // guards dict_ and what is in it
  static FreeThreadedMutex options_mutex_;
};

class RequestView final : public DictView {
 public:
  void attach(Request& request) noexcept {
    request_ = &request;
    point_to(&request.dict);
  }
  void detach() noexcept { point_to(nullptr); }
  std::atomic<unsigned> lent{0};  // to so many calls of children

  // use(request), in the same way.
  template <class Use>
  auto with_request(Use use) const {
    return with([&](const Dict&) { return use(*request_); });
  }

 private:
  Request* request_ = nullptr;
};

// Requests that are in the hands of a child of the backend. Whatever thread called that, until it is back they stay where they are.
class Borrowed {
 public:
  // The requests of views, each once.
  explicit Borrowed(const py::list& batch);
  ~Borrowed() { give_back(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  const std::vector<Request*>& requests() const noexcept { return requests_; }

 private:
  void take(py::handle item);
  void give_back() noexcept;

  std::vector<py::object> views_;
  std::vector<Request*> requests_;
};

// Views of a batch, detached at the end of its scope: when no child has them any more.
class BatchViews {
 public:
  explicit BatchViews(Batch batch);
  ~BatchViews();
  BatchViews(const BatchViews&) = delete;
  BatchViews& operator=(const BatchViews&) = delete;
  const py::list& list() const noexcept { return list_; }

 private:
  py::list list_;
  std::vector<std::pair<RequestView*, py::object>> views_;  // the object owns the view
};

void register_views(py::module_& module);

}  // namespace hami::bind
