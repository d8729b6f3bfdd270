// A request as a Python backend sees it: a mapping over the core's dict, shown lazily, valid for the time of the call.
#pragma once

#include <memory>
#include <vector>

#include "gil.hpp"
#include "registry/request.hpp"

namespace hami::bind {

class DictView {
 public:
  explicit DictView(Dict* dict) noexcept : dict_(dict) {}
  explicit DictView(std::shared_ptr<Dict> dict) noexcept : dict_(dict.get()), kept_(std::move(dict)) {}
  virtual ~DictView() = default;

  Dict& dict() const;  // throws once the call is over
  void detach() noexcept { dict_ = nullptr; }

 private:
  Dict* dict_;
  std::shared_ptr<Dict> kept_;  // null: the dict is borrowed until detach()
};

class RequestView final : public DictView {
 public:
  explicit RequestView(Request& request) noexcept : DictView(&request.dict), request_(&request) {}
  Request& request() const {
    dict();
    return *request_;
  }

 private:
  Request* request_;
};

// Views of a batch, detached at the end of its scope.
class BatchViews {
 public:
  explicit BatchViews(Batch batch);
  ~BatchViews();
  BatchViews(const BatchViews&) = delete;
  BatchViews& operator=(const BatchViews&) = delete;
  const py::list& list() const noexcept { return list_; }

 private:
  py::list list_;
  std::vector<RequestView*> views_;  // owned by the list's objects, which this keeps alive
  std::vector<py::object> objects_;
};

void register_views(py::module_& module);

}  // namespace hami::bind
