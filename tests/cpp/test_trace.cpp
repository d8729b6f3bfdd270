// The timeline: what its file contains when rings are full, threads end, and traces follow each other.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include "observe/trace.hpp"
#include "pipes.hpp"
#include "telemetry/trace_recorder.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// A file that is removed at the end of the test.
struct TraceFile {
  std::string path = std::filesystem::temp_directory_path() / ("hami-trace-" + std::to_string(getpid()) + ".pftrace");
  ~TraceFile() { std::remove(path.c_str()); }
  std::string read() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

// Calls `use` with the number and the payload of each field of a message; a number without payload has an empty one.
template <class Use>
void each_field(std::string_view message, const Use& use) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      REQUIRE(!message.empty());
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!message.empty()) {
    const std::uint64_t tag = varint();
    std::string_view payload;
    std::uint64_t value = 0;
    if ((tag & 7) == 0) {
      value = varint();
    } else {
      const std::size_t size = (tag & 7) == 1 ? 8 : varint();
      REQUIRE(size <= message.size());
      payload = message.substr(0, size);
      message.remove_prefix(size);
    }
    use(tag >> 3, payload, value);
  }
}

struct PacketCounts {
  std::size_t packets = 0, begins = 0, ends = 0, instants = 0;
};

PacketCounts counts_of(std::string_view trace) {
  PacketCounts counts;
  each_field(trace, [&](std::uint64_t, std::string_view packet, std::uint64_t) {
    ++counts.packets;
    each_field(packet, [&](std::uint64_t field, std::string_view event, std::uint64_t) {
      if (field != 11) return;
      each_field(event, [&](std::uint64_t part, std::string_view, std::uint64_t value) {
        if (part != 9) return;
        counts.begins += value == 1;
        counts.ends += value == 2;
        counts.instants += value == 3;
      });
    });
  });
  return counts;
}

trace::Event instant(std::string_view name) {
  trace::Event event;
  event.time = now();
  event.name = trace::intern(name);
  return event;
}

ErrorCode code_of_start(const std::string& path) {
  try {
    trace::start({path});
  } catch (const Error& error) {
    return error.code();
  }
  trace::stop();
  return ErrorCode::kUnknown;
}

void run_for_2_ms(TestPipe& pipe, Gated& gated) {
  TestPipe::Pending pending = pipe.submit(Value(1));
  gated.gate->arrived.wait_for(1);
  const Nanoseconds slow = after(from_milliseconds(2));
  while (now() < slow) {
  }
  gated.gate->open();
  CHECK(pending.wait().good);
}

}  // namespace

TEST_CASE("trace: each event of each thread is in the file or counted as lost, and every slice has its end") {
  constexpr std::uint64_t kThreads = 4, kEach = 30'000;
  const TraceFile file;
  trace::start({file.path});
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([] {
      trace::Slice outer;
      outer.begin(instant("outer"));
      for (std::uint64_t each = 0; each < kEach; ++each) {
        trace::Slice slice;
        slice.begin(instant("slice"));
        trace::record(instant("inside"));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const trace::Summary summary = trace::stop();
  const PacketCounts counts = counts_of(file.read());
  CHECK(summary.error.empty());
  CHECK(counts.begins == counts.ends);
  CHECK(counts.begins + counts.instants + summary.lost >= kThreads * (2 * kEach + 1));
  CHECK(summary.written == file.read().size());
}

TEST_CASE("trace: a second trace is refused, and the first one goes on") {
  const TraceFile file;
  trace::start({file.path});
  CHECK(code_of_start("other.pftrace") == ErrorCode::kAlreadyExists);
  trace::record(instant("still recorded"));
  CHECK(trace::stop().events == 1);
  CHECK(trace::stop().events == 0);
}

TEST_CASE("trace: a path that cannot be written is an error of the start") {
  CHECK(code_of_start("no/such/folder/trace") == ErrorCode::kConfig);
  CHECK(code_of_start("/dev/full") == ErrorCode::kConfig);
  CHECK_FALSE(trace::active());
}

TEST_CASE("trace: a slice that ends after its trace is not in the next one") {
  const TraceFile file;
  trace::Slice slice;
  trace::start({file.path});
  slice.begin(instant("long"));
  trace::stop();
  trace::start({file.path});
  slice.end();
  trace::record(instant("new"));
  trace::stop();
  const PacketCounts counts = counts_of(file.read());
  CHECK(counts.begins == 0);
  CHECK(counts.ends == 0);
  CHECK(counts.instants == 1);
}

TEST_CASE("trace: a request of a pipe has its submission, its queue, its batch, its backends and its outcome") {
  const TraceFile file;
  TestPipe pipe({{"backend", "Identity"}, {"max", 4}});
  CHECK(pipe.call(Value(1)).good);  // not in the trace
  trace::start({file.path});
  CHECK(pipe.call(Value(1)).good);
  trace::stop();
  CHECK(pipe.call(Value(1)).good);
  const PacketCounts counts = counts_of(file.read());
  CHECK(counts.begins >= 3);  // request, batch, backend; and the queue if it did not run inline
  CHECK(counts.begins == counts.ends);
}

TEST_CASE("trace: with `last`, the file shows what led to a slow request") {
  const TraceFile file;
  Gated gated("TestTraceGated");
  TestPipe pipe({{"backend", "TestTraceGated"}, {"max", 1}});
  trace::start({file.path, from_milliseconds(60'000), from_milliseconds(1)});
  run_for_2_ms(pipe, gated);
  const trace::Summary summary = trace::stop();
  CHECK(summary.written == 1);
  const PacketCounts counts = counts_of(file.read());
  CHECK(counts.begins >= 3);
  CHECK(counts.instants >= 1);
}

TEST_CASE("trace: with `last`, the steps of a few requests are recorded in each period, else those of all") {
  const auto sampled = [] {
    int count = 0;
    for (int i = 0; i < 100; ++i) count += trace::samples_request();
    return count;
  };
  trace::begin_sampling(true, kNever);
  CHECK(sampled() == trace::kSampledRequests);
  CHECK(sampled() == 0);
  trace::begin_period();
  CHECK(sampled() == trace::kSampledRequests);
  trace::begin_sampling(false, kNever);
  CHECK(sampled() == 100);
}

TEST_CASE("trace: with `last`, a slow request is in the file also if its steps were not recorded") {
  const TraceFile file;
  Gated gated("TestTraceUnsampled");
  TestPipe pipe({{"backend", "TestTraceUnsampled"}, {"max", 1}});
  trace::detail::sampled_requests = 0;
  trace::start({file.path, from_milliseconds(60'000), from_milliseconds(1)});
  run_for_2_ms(pipe, gated);
  CHECK(trace::stop().written == 1);
  trace::detail::sampled_requests = trace::kSampledRequests;
  const PacketCounts counts = counts_of(file.read());
  CHECK(counts.begins == 1);
  CHECK(counts.ends == 1);
}

TEST_CASE("trace: with `last` and without a slow request, the file is empty") {
  const TraceFile file;
  TestPipe pipe({{"backend", "Identity"}});
  trace::start({file.path, from_milliseconds(60'000), from_milliseconds(30'000)});
  CHECK(pipe.call(Value(1)).good);
  CHECK(trace::stop().written == 0);
  CHECK(file.read().empty());
}

TEST_CASE("trace: hops of a graph, retries and failures are recorded") {
  const TraceFile file;
  define("TestTraceFails", [](Batch batch, const Params&) {
    if (batch.size() > 1) throw Error(ErrorCode::kInternal, "not together");
    add(batch, 1);
  }, {own_thread(), {1, 4}, ""});
  TestPipe pipe(graph({{"first", {{"backend", "TestTraceFails"}, {"max", 4}, {"next", "second"}}},
                       {"second", {{"backend", "TestTraceFails"}, {"max", 4}}}}));
  trace::start({file.path});
  CHECK_EQ(outcomes_of(pipe.call_many(requests_of({1, 2}))), "3, 4");
  Dict large = request_of(Value(1));
  large.enter("request_size", Value(5));
  CHECK_FALSE(pipe.call(std::move(large)).good);
  trace::stop();
  const std::string recorded = file.read();
  for (const char* name : {"hop", "retry", "failed"}) {
    CAPTURE(name);
    CHECK_NE(recorded.find(name), std::string::npos);
  }
}
