// TraceWriter: the encoding. Numbers of fields are those of perfetto/trace/trace_packet.proto and of what it imports.
#include "telemetry/trace_writer.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace hami::trace {
namespace {

constexpr unsigned kPacketOfTrace = 1;
enum PacketField : unsigned {
  kClockSnapshot = 6,
  kTimestamp = 8,
  kSequence = 10,
  kTrackEvent = 11,
  kInternedData = 12,
  kSequenceFlags = 13,
  kDefaults = 59,
  kTrackDescriptor = 60,
};
enum EventField : unsigned {
  kCategoryIid = 3,
  kAnnotation = 4,
  kType = 9,
  kNameIid = 10,
  kTrackUuid = 11,
  kEventName = 23,
  kFlow = 47,
  kTerminatingFlow = 48,
};
enum EventType : int { kSliceBegin = 1, kSliceEnd = 2, kInstantType = 3 };
enum InternedField : unsigned { kCategories = 1, kNames = 2, kAnnotationNames = 3, kAnnotationTexts = 29 };
enum SequenceFlag : unsigned { kCleared = 1, kNeedsInterned = 2 };
enum Annotation : std::uint64_t { kRequestId = 1, kBatchId, kNode, kItems, kStarted, kOutcome };
constexpr const char* kAnnotationKeys[] = {"request", "batch", "node", "items", "started", "outcome"};

// Tracks and flows have the number of their process above these bits, which at most 22 bits take, so that the files of several
// processes can be joined.
constexpr unsigned kBitsInProcess = 38;
constexpr std::uint64_t kFirstThreadTrack = 1;  // of a process, whose own track is 0
constexpr std::uint64_t kRequestTracks = std::uint64_t{1} << 62;
constexpr std::uint64_t kApartTracks = std::uint64_t{1} << 63;
constexpr unsigned kMonotonicClock = 3, kRealtimeClock = 1, kBoottimeClock = 6;

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put(std::string& out, unsigned field, std::uint64_t value) {
  put_varint(out, field << 3);
  put_varint(out, value);
}

void put_fixed(std::string& out, unsigned field, std::uint64_t value) {
  put_varint(out, field << 3 | 1);
  for (unsigned bits = 0; bits < 64; bits += 8) out.push_back(static_cast<char>(value >> bits));
}

void put(std::string& out, unsigned field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// A message in a message. Its length is written last, as a varint of four bytes.
template <class Fill>
void put_message(std::string& out, unsigned field, const Fill& fill) {
  constexpr std::size_t kLength = 4;
  put_varint(out, field << 3 | 2);
  const std::size_t at = out.size();
  out.append(kLength, '\0');
  fill();
  const std::size_t length = out.size() - at - kLength;
  for (std::size_t i = 0; i < kLength; ++i)
    out[at + i] = static_cast<char>((length >> (7 * i) & 0x7f) | (i + 1 < kLength ? 0x80 : 0));
}

void put_interned(std::string& out, unsigned field, std::uint64_t number, std::string_view text) {
  put_message(out, field, [&] {
    put(out, 1, number);
    put(out, 2, text);
  });
}

void annotate(std::string& out, Annotation key, std::uint64_t value) {
  put_message(out, kAnnotation, [&] {
    put(out, 1, key);
    put(out, 3, value);
  });
}

void annotate_text(std::string& out, Annotation key, std::uint64_t text) {
  put_message(out, kAnnotation, [&] {
    put(out, 1, key);
    put(out, 17, text);
  });
}

std::uint64_t clock_time(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

std::string name_of_process() {
  char name[16];  // the size of the kernel's own
  const int file = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t size = ::read(file, name, sizeof name);
  ::close(file);
  return {name, std::find(name, name + std::max<ssize_t>(size, 0), '\n')};
}

bool insert(std::vector<bool>& known, std::size_t number) {
  if (number >= known.size()) known.resize(number + 1);
  if (known[number]) return false;
  known[number] = true;
  return true;
}

}  // namespace

TraceWriter::TraceWriter()
    : process_(static_cast<std::uint64_t>(getpid())), process_track_(process_ << kBitsInProcess) {
  put_message(out_, kPacketOfTrace, [&] {
    put(out_, kSequence, process_);
    put(out_, kSequenceFlags, kCleared);
    put_message(out_, kClockSnapshot, [&] {
      for (const auto& clock : {std::pair(kMonotonicClock, CLOCK_MONOTONIC), std::pair(kBoottimeClock, CLOCK_BOOTTIME),
                                std::pair(kRealtimeClock, CLOCK_REALTIME)})
        put_message(out_, 1, [&] {
          put(out_, 1, clock.first);
          put(out_, 2, clock_time(clock.second));
        });
    });
    put_message(out_, kDefaults, [&] { put(out_, 58, kMonotonicClock); });
    put_message(out_, kInternedData, [&] {
      for (std::size_t i = 0; i < std::size(kCategoryNames); ++i)
        put_interned(out_, kCategories, i + 1, kCategoryNames[i]);
      for (std::size_t i = 0; i < std::size(kAnnotationKeys); ++i)
        put_interned(out_, kAnnotationNames, i + 1, kAnnotationKeys[i]);
    });
  });
  describe_process();
}

void TraceWriter::describe_process() {
  put_message(out_, kPacketOfTrace, [&] {
    put(out_, kSequence, process_);
    put_message(out_, kTrackDescriptor, [&] {
      put(out_, 1, process_track_);
      put_message(out_, 3, [&] {
        put(out_, 1, process_);
        put(out_, 6, name_of_process());
      });
    });
  });
}

void TraceWriter::describe_thread(std::size_t index, const Thread& thread) {
  put_message(out_, kPacketOfTrace, [&] {
    put(out_, kSequence, process_);
    put_message(out_, kTrackDescriptor, [&] {
      put(out_, 1, process_track_ + kFirstThreadTrack + index);
      put(out_, 5, process_track_);
      put_message(out_, 4, [&] {
        put(out_, 1, process_);
        put(out_, 2, static_cast<std::uint64_t>(thread.id));
        put(out_, 5, thread.name);
      });
    });
  });
}

void TraceWriter::describe_track(std::uint64_t track, const char* name) {
  put_message(out_, kPacketOfTrace, [&] {
    put(out_, kSequence, process_);
    put_message(out_, kTrackDescriptor, [&] {
      put(out_, 1, track);
      put(out_, 2, std::string_view(name));
      put(out_, 5, process_track_);
    });
  });
}

std::uint64_t TraceWriter::event_name(Name name) {
  if (insert(known_names_, name)) put_interned(defined_, kNames, name, text_of(name));
  return name;
}

std::uint64_t TraceWriter::annotation_text(Name text) {
  if (insert(known_texts_, text)) put_interned(defined_, kAnnotationTexts, text, text_of(text));
  return text;
}

template <class Fill>
void TraceWriter::add_event(Nanoseconds time, int type, std::uint64_t track, const Fill& fill) {
  put_message(out_, kPacketOfTrace, [&] {
    put(out_, kTimestamp, static_cast<std::uint64_t>(time));
    put(out_, kSequence, process_);
    put(out_, kSequenceFlags, kNeedsInterned);
    put_message(out_, kTrackEvent, [&] {
      put(out_, kType, static_cast<std::uint64_t>(type));
      put(out_, kTrackUuid, track);
      fill();
    });
    if (defined_.empty()) return;
    put(out_, kInternedData, defined_);
    defined_.clear();
  });
}

void TraceWriter::add_mark(const char* name, Nanoseconds time, const char* key, std::uint64_t value) {
  add_event(time, kInstantType, process_track_, [&] {
    put(out_, kEventName, std::string_view(name));
    put_message(out_, kAnnotation, [&] {
      put(out_, 10, std::string_view(key));
      put(out_, 3, value);
    });
  });
}

void TraceWriter::add_slice_of_thread(const Event& event, int type, std::size_t index) {
  add_event(event.time, type, process_track_ + kFirstThreadTrack + index, [&] {
    put(out_, kNameIid, event_name(event.name));
    put(out_, kCategoryIid, static_cast<std::uint64_t>(event.category) + 1);
    if (type == kSliceBegin && event.batch) {
      for (const Event& member : members_[index])
        if (member.batch == event.batch) put_fixed(out_, kFlow, process_track_ + member.request);
    }
    add_details(event);
  });
}

void TraceWriter::add_details(const Event& event) {
  if (event.request) put_fixed(out_, kFlow, process_track_ + event.request);
  if (event.request) annotate(out_, kRequestId, event.request);
  if (event.batch) annotate(out_, kBatchId, event.batch);
  if (event.node) annotate_text(out_, kNode, annotation_text(event.node));
  if (event.count) annotate(out_, kItems, event.count);
  if (event.reason) annotate_text(out_, kStarted, annotation_text(event.reason));
}

void TraceWriter::add_request(const Event& event, int type) {
  const std::uint64_t track = kRequestTracks + process_track_ + event.request;
  if (type == kSliceBegin) describe_track(track, "requests");
  add_event(event.time, type, track, [&] {
    if (type == kSliceBegin) {
      put(out_, kNameIid, event_name(request_));
      put(out_, kCategoryIid, static_cast<std::uint64_t>(Category::kRequest) + 1);
      put_fixed(out_, kFlow, process_track_ + event.request);
      annotate(out_, kRequestId, event.request);
    } else {
      annotate_text(out_, kOutcome, annotation_text(event.name));
    }
  });
}

// On a track of its own: the requests of one graph, and tasks of one thread, overlap.
void TraceWriter::add_apart(const Event& event, Name name, Category category) {
  const std::uint64_t track = kApartTracks + process_track_ + ++apart_;
  const auto category_number = static_cast<std::size_t>(category);
  describe_track(track, kCategoryNames[category_number]);
  add_event(event.time, kSliceBegin, track, [&] {
    put(out_, kNameIid, event_name(name));
    put(out_, kCategoryIid, category_number + 1);
    add_details(event);
  });
  add_event(event.until, kSliceEnd, track, [] {});
}

void TraceWriter::add(const Event& event, std::size_t index, const Thread& thread) {
  if (insert(known_threads_, index)) {
    describe_thread(index, thread);
    if (index >= members_.size()) members_.resize(index + 1);
  }
  switch (event.kind) {
    case Event::kBegin:
      add_slice_of_thread(event, kSliceBegin, index);
      if (event.batch) members_[index].clear();
      return;
    case Event::kEnd: return add_event(event.time, kSliceEnd, process_track_ + kFirstThreadTrack + index, [] {});
    case Event::kInstant: return add_slice_of_thread(event, kInstantType, index);
    case Event::kMember:
      // Those of a slice that was lost are not members of the next one.
      if (!members_[index].empty() && members_[index].back().batch != event.batch) members_[index].clear();
      if (event.batch) members_[index].push_back(event);
      if (event.time > 0) add_apart(event, queue_, Category::kQueue);
      return;
    case Event::kRequestBegin: return add_request(event, kSliceBegin);
    case Event::kRequestEnd: return add_request(event, kSliceEnd);
    case Event::kSlice: return add_apart(event, event.name, event.category);
  }
}

}  // namespace hami::trace
