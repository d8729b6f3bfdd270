// Counters that backends name themselves. Added to by any thread, read by anyone, at any time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace hami {

class Counters {
 public:
  void add(std::string_view name, std::int64_t by) {
    std::lock_guard lock(mutex_);
    const auto found = counts_.find(name);
    found == counts_.end() ? void(counts_.emplace(name, by)) : void(found->second += by);
  }
  std::map<std::string, std::int64_t, std::less<>> all() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;  // guards counts_
  std::map<std::string, std::int64_t, std::less<>> counts_;
};

}  // namespace hami
