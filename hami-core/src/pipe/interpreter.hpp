// Interpreter: the top of every pipe. It builds the nodes one after the other, and the entrypoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/api.hpp"
#include "pipe/planner.hpp"

namespace hami {

class Registry;

class Interpreter final : public Backend {
 public:
  ~Interpreter() override;

  // Builds each node by its init expression with its own parameters, in the order of the configuration, then the
  // entrypoint. Throws the Error of the first backend that cannot be initialised, with its node.
  void make(const PipePlan& plan, const std::shared_ptr<PipeContext>& context);
  const BackendPtr& entrypoint() const noexcept { return entrypoint_; }

  bool is_asynchronous() const noexcept override { return entrypoint_->is_asynchronous(); }

 private:
  void forward_(Batch batch) override { entrypoint_->forward(batch); }
  void post_(Batch batch, InlinePolicy how) override { entrypoint_->post(batch, how); }
  Range range_() const override { return entrypoint_->range(); }

  std::vector<BackendPtr> nodes_;
  BackendPtr entrypoint_;
};

void register_interpreter(Registry& registry);

}  // namespace hami
