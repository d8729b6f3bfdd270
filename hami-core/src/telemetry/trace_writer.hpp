// TraceWriter: events as packets of a Perfetto trace (the protocol buffer messages TracePacket and TrackEvent).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "observe/api.hpp"

namespace hami::trace {

class TraceWriter {
 public:
  // Begins with the packets that describe the clocks and the process.
  TraceWriter();

  // `index`: the number of the thread, from 0 on.
  void add(const Event& event, std::size_t index, const Thread& thread);
  // An instant of the process.
  void add_mark(const char* name, Nanoseconds time, const char* key, std::uint64_t value);

  const std::string& packets() const noexcept { return out_; }  // whole ones
  void clear() noexcept { out_.clear(); }

 private:
  void describe_process();
  void describe_thread(std::size_t index, const Thread& thread);
  void describe_track(std::uint64_t track, const char* name);
  void add_slice_of_thread(const Event& event, int type, std::size_t index);
  void add_request(const Event& event, int type);
  void add_apart(const Event& event, Name name, Category category);
  void add_details(const Event& event);
  template <class Fill>
  void add_event(Nanoseconds time, int type, std::uint64_t track, const Fill& fill);
  // The number of a text in the file; defines it with the current packet if it is new.
  std::uint64_t event_name(Name name);
  std::uint64_t annotation_text(Name text);

  // Packets of one sequence share interned texts; a file has one sequence, with the number of the process.
  const std::uint64_t process_, process_track_;
  const Name request_ = intern("request"), queue_ = intern("queue");
  std::string out_;
  std::string defined_;  // what the current packet defines
  std::vector<bool> known_names_, known_texts_, known_threads_;
  std::vector<std::vector<Event>> members_;  // of the next slice, by thread
  std::uint64_t apart_ = 0;                  // slices on tracks of their own
};

}  // namespace hami::trace
