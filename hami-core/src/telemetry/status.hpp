// Status: what other processes may ask about the pipes of this one, answered without Python, so also if all threads are stuck.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "observe/api.hpp"

namespace hami {

// What a pipe shows. The maps exist until it is withdrawn.
struct PublishedPipe {
  std::string description;  // a JSON object
  Nanoseconds opened_at = 0;
  const std::map<std::string, NodeStats>* stats = nullptr;
  const std::map<std::string, NodeTimes>* times = nullptr;
  const std::map<std::string, Counters>* counters = nullptr;
  std::string label = {};  // what the program calls it; changed by `set_label` only
};

// Shows the pipe from now on. The first one opens the socket and starts a thread, unless the environment variable HAMI_TOP is 0.
// Without memory, threads or a folder for the socket it is not shown.
void publish(std::shared_ptr<const PublishedPipe> pipe) noexcept;
// Shows it no longer, which has no effect if it is not shown; afterwards nothing reads its maps. The last one closes the socket
// and ends the thread, which takes microseconds.
void withdraw(const PublishedPipe& pipe) noexcept;

// Names the pipe from now on.
void set_label(PublishedPipe& pipe, std::string label);

// The document that a connection gets.
std::string status_json();

}  // namespace hami
