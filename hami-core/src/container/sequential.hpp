// S[a,b,…]: one after the other; `result` of one child is `data` of the next.
#pragma once

#include "registry/init.hpp"

namespace hami {

class Sequential final : public Backend {
 public:
  bool runs_locked() const noexcept override;
  bool begins_locked() const noexcept override { return steps_.front().backend->begins_locked(); }

 private:
  struct Step {
    BackendPtr backend;
    bool is_or;       // only for requests that nobody answered yet
    bool stays_locked = false;  // it runs locked, and so does the one before or after it
  };

  void init_(Init& init) override;
  void forward_(Batch batch) override;
  Range range_() const override { return range_of_; }

  std::vector<Step> steps_;
  Range range_of_;
};

}  // namespace hami
