// BackgroundThread: every call goes to the thread; so does the end.
#include "registry/background_thread.hpp"

#include "registry/running.hpp"

namespace hami {

BackendPtr BackgroundThread::around(const Plan& plan, const Init& init) {
  auto thread = std::make_shared<BackgroundThread>();
  thread->describe(plan.label, plan.traits);
  thread->start(plan, init);
  return thread;
}

void BackgroundThread::init_(Init& init) { start(*init.items()[0].plan, init); }

void BackgroundThread::start(const Plan& plan, const Init& init) {
  context_ = init.shared_context();
  name_ = plan.label + " of node \"" + init.node() + "\"";
  worker_ = std::make_unique<Worker>(plan.label);
  Init inner = init.on_own_thread();
  worker_->run([&] { inner_ = inner.make(plan); });
}

BackgroundThread::~BackgroundThread() {
  if (!worker_) return;
  // Held in one place: a std::function may be copied on its way, and the last copy could go on this thread.
  worker_->post([held = std::make_shared<BackendPtr>(std::move(inner_))] { *held = nullptr; });
  if (!worker_->stop(context_->close_until())) context_->report_abandoned(name_);
}

void BackgroundThread::forward_(Batch batch) {
  worker_->run([&, caller = Running::on_this_thread()] {
    const Running::Adopted adopted(caller);
    inner_->forward(batch);
  });
}

void BackgroundThread::forward_with_dep_(Batch batch, Backend& dependency) {
  worker_->run([&, caller = Running::on_this_thread()] {
    const Running::Adopted adopted(caller);
    inner_->forward_with_dep(batch, dependency);
  });
}

void BackgroundThread::inject_dependency_(const BackendPtr& dependency) {
  worker_->run([&] { inner_->inject_dependency(dependency); });
}

}  // namespace hami
