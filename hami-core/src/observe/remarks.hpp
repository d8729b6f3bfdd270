// Remarks: sentences of backends about their node. Thread-safe.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/mutex.hpp"

namespace hami {

class Remarks {
 public:
  static constexpr std::size_t kMost = 32;  // of one node; later ones are dropped

  // Each sentence once: all instances of a node may say the same.
  void add(const std::string& text) {
    MutexLock lock(mutex_);
    if (texts_.size() < kMost && std::find(texts_.begin(), texts_.end(), text) == texts_.end()) texts_.push_back(text);
  }
  std::vector<std::string> all() const {
    MutexLock lock(mutex_);
    return texts_;
  }
  // Each on a line of its own, below an error that they may explain.
  std::string lines() const {
    std::string text;
    for (const std::string& remark : all()) text += '\n' + remark;
    return text;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> texts_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
