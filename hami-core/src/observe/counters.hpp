// Counters: named counts that backends keep. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/mutex.hpp"

namespace hami {

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

}  // namespace hami
