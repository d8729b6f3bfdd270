// What backends note about their node: counters and remarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/api.hpp"

namespace hami {

// Counters: named counts that backends keep. Thread-safe.
class Counters {
 public:
  void add(std::string_view name, std::int64_t by) {
    MutexLock lock(mutex_);
    const auto found = counts_.find(name);
    found == counts_.end() ? void(counts_.emplace(name, by)) : void(found->second += by);
  }
  std::map<std::string, std::int64_t, std::less<>> all() const {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::int64_t, std::less<>> counts_ HAMI_GUARDED_BY(mutex_);
};

// Remarks: sentences of backends about their node. Thread-safe.
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
