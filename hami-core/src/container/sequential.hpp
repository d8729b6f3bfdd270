// Sequential, S[a,b,…]: runs children in order; `result` of one is `data` of the next.
#pragma once

#include "backend/api.hpp"

namespace hami {

class Sequential final : public Backend {
 public:
  bool acquires_gil() const noexcept override { return steps_.front().backend->acquires_gil(); }

 private:
  struct Step {
    BackendPtr backend;
    bool is_or;  // only for requests without a result
  };

  void init_(Init& init) override;
  void forward_(Batch batch) override;
  Range range_() const override { return range_of_; }
  CostFunction request_cost_() const override { return steps_.front().backend->request_cost(); }

  std::vector<Step> steps_;
  Range range_of_;
};

}  // namespace hami
