// NestedCall: a call that a backend makes for a batch. It ends when every request of the batch is cancelled.
#pragma once

#include "request/request.hpp"

namespace hami {

class NestedCall : public CompletionSink {
 public:
  // Completes every open request with this error. False: all were complete.
  virtual bool give_up(const Error& error) noexcept = 0;

  // After requests were abandoned: gives up the calls of batches that have none left.
  static void give_up_cancelled() noexcept;

 protected:
  // Makes this a call of the innermost batch of the thread, until `leave_batch` or the end of the batch. False: the batch is cancelled.
  bool join_batch() noexcept;
  void leave_batch() noexcept;

 private:
  bool joined_ = false;  // by the thread that starts the call, before that
};

}  // namespace hami
