// Python views of the core's dicts: a request during `forward`, and the shared options of `init`. Values are converted
// on access.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "gil.hpp"
#include "request/api.hpp"

namespace hami::bind {

// A mutable mapping over a Dict. A backend's own threads may use one view concurrently, also after the call has
// returned.
class DictView {
 public:
  DictView() noexcept : dict_(nullptr), mutex_(own_mutex_) {}
  // For options, which several backends share, each through its own view.
  explicit DictView(std::shared_ptr<Dict> dict) noexcept
      : dict_(dict.get()), owned_(std::move(dict)), mutex_(options_mutex_) {}
  virtual ~DictView() = default;
  DictView(const DictView&) = delete;
  DictView& operator=(const DictView&) = delete;

  // Runs use(dict) under the mutex. Throws Error(kRequest) once `forward` has returned. `use` returns the values that
  // it removes, so that they are destroyed after the mutex is released.
  template <class Use>
  auto with(Use use) const {
    const FreeThreadedLock lock(mutex_);
    return use(dict());
  }

 protected:
  void point_to(Dict* dict) noexcept {
    const FreeThreadedLock lock(mutex_);
    dict_ = dict;
  }

 private:
  Dict& dict() const HAMI_REQUIRES(mutex_);

  Dict* dict_ HAMI_GUARDED_BY(mutex_);
  std::shared_ptr<Dict> owned_;  // null if the dict is borrowed for one call of `forward`
  FreeThreadedMutex own_mutex_;
  FreeThreadedMutex& mutex_;                // guards also the contents of dict_
  static FreeThreadedMutex options_mutex_;  // one for all options: several views may share a dict
};

// hami.Request: the view of one request of a batch.
class RequestView final : public DictView {
 public:
  void attach(Request& request, bool has_neighbours) noexcept {
    request_ = &request;
    has_neighbours_ = has_neighbours;
    point_to(&request.dict);
  }
  void detach() noexcept { point_to(nullptr); }
  // Whether an exception of the backend fails other requests too.
  bool has_neighbours() const noexcept { return has_neighbours_; }
  std::atomic<unsigned> borrow_count{0};  // calls of children that use the request now

  // Runs use(request), like `with`.
  template <class Use>
  auto with_request(Use use) const {
    return with([&](const Dict&) { return use(*request_); });
  }

 private:
  Request* request_ = nullptr;
  std::atomic<bool> has_neighbours_{false};
};

// Requests that a child's `forward` uses, on any thread. BatchViews waits for their return before the requests end.
class Borrowed {
 public:
  // `batch` holds RequestViews. Error(kDataType) if it holds another object or one request twice.
  explicit Borrowed(const py::list& batch);
  ~Borrowed() { return_all(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  const std::vector<Request*>& requests() const noexcept { return requests_; }

 private:
  void borrow_one(py::handle item);
  void return_all() noexcept;

  std::vector<py::object> views_;
  std::vector<Request*> requests_;
};

// The views of a batch. The destructor detaches them and waits until no child uses the requests.
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

[[gnu::cold]] void register_views(py::module_& module);

}  // namespace hami::bind
