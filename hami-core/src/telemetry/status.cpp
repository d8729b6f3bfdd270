// Status: the pipes that are shown, the document, and the thread that sends it.
#include "telemetry/status.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/json_writer.hpp"
#include "telemetry/status_socket.hpp"

namespace hami {
namespace {

// The thread that sends the document, and its socket. It is not a Worker: it never runs a backend, so it is not attached to the
// language and can be joined with or without the GIL. Until a process connects it allocates nothing, because a thread that does
// makes the C library reserve much address space for it.
class Server {
 public:
  // Null: there is no folder for the socket, or no thread.
  static std::unique_ptr<Server> start() {
    std::unique_ptr<Server> server(new Server);
    if (!server->socket_) return nullptr;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return nullptr;
    pthread_attr_setstacksize(&attributes, kStackBytes);
    sigset_t all, before;  // signals are for the threads of the program
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    server->started_ = pthread_create(&server->thread_, &attributes, serve, server.get()) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return server->started_ ? std::move(server) : nullptr;
  }
  ~Server() {
    if (!started_) return;
    socket_.close();
    pthread_join(thread_, nullptr);
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // the nesting of the document is fixed

  Server() = default;
  static void* serve(void* server) {
    pthread_setname_np(pthread_self(), "hami-top");
    static_cast<const Server*>(server)->socket_.serve(status_json);
    return nullptr;
  }

  const StatusSocket socket_ = StatusSocket::open();
  pthread_t thread_{};
  bool started_ = false;
};

struct Published {
  Mutex changes;  // held while the server starts or stops
  std::unique_ptr<Server> server HAMI_GUARDED_BY(changes);
  Mutex mutex;  // held while pipes are read
  std::vector<std::shared_ptr<const PublishedPipe>> pipes HAMI_GUARDED_BY(mutex);
};

PerProcess<Published> published;

bool is_enabled() noexcept {
  const char* const given = std::getenv("HAMI_TOP");
  return !given || std::string_view(given) != "0";
}

template <class Times>
void write_histograms(JsonWriter& json, const Times& times) {
  for_each_histogram(times, [&](const char* name, const Histogram& histogram, double unit) {
    json.key(name);
    json.array([&] {
      json.value(static_cast<double>(histogram.sum()) / unit);
      json.array([&] {
        for_each_bucket(histogram, unit, [&](double lower, double upper, std::uint64_t count) {
          json.array([&] {
            json.value(lower);
            json.value(upper);
            json.value(count);
          });
        });
      });
    });
  });
}

void write_lanes(JsonWriter& json, const NodeStats& node, const NodeTimes* times) {
  json.key("lanes");
  json.object([&] {
    for (const LaneName lane : {kUrgentLane, kHighLane}) {
      json.key(kLaneNames[lane]);
      json.object([&] {
        for_each_count(node.lanes[lane], [&](const char* name, std::uint64_t count) {
          json.key(name);
          json.value(count);
        });
        if (times) write_histograms(json, times->lanes[lane]);
      });
    }
  });
}

void write_times(JsonWriter& json, const NodeTimes& times, const NodeStats& node) {
  write_histograms(json, times);
  json.key("backend_ms");
  json.object([&] {
    for_each_backend(times, node, [&](const std::string& name, double milliseconds, const BackendTime&) {
      json.key(name);
      json.value(milliseconds);
    });
  });
}

void write_node(JsonWriter& json, const PublishedPipe& pipe, const std::string& name, const NodeStats& node,
                double uptime) {
  json.object([&] {
    for_each_statistic(node, [&](const char* key, auto value) {
      json.key(key);
      json.value(value);
    });
    json.key("policy");
    json.object([&] {
      for_each_decision(node, now(), [&](const char* key, auto value) {
        json.key(key);
        json.value(value);
      });
    });
    json.key("uptime_s");
    json.value(uptime);
    const auto times = pipe.times->find(name);
    const bool has_times = times != pipe.times->end();
    if (uses_lanes(node)) write_lanes(json, node, has_times ? &times->second : nullptr);
    if (has_times) write_times(json, times->second, node);
    if (const auto counters = pipe.counters->find(name); counters != pipe.counters->end()) {
      json.key("counters");
      json.object([&] {
        for (const auto& [counter, count] : counters->second.all()) {
          json.key(counter);
          json.value(count);
        }
      });
    }
  });
}

void write_threads(JsonWriter& json, const PublishedPipe& pipe, Nanoseconds moment) {
  json.array([&] {
    for (const auto& node : *pipe.stats) {
      const auto times = pipe.times->find(node.first);
      if (times == pipe.times->end()) continue;
      const bool is_only = times->second.backends.size() == 1;
      for_each_backend(times->second, node.second, [&](const std::string& backend, double, const BackendTime& time) {
        (is_only ? times->second.threads : time.threads).for_each([&](int thread, Nanoseconds since) {
          json.object([&] {
            json.key("thread");
            json.value(thread);
            json.key("node");
            json.value(std::string_view(node.first));
            json.key("backend");
            json.value(std::string_view(backend));
            json.key("seconds");
            json.value(static_cast<double>(std::max<Nanoseconds>(0, moment - since)) / 1e9);
          });
        });
      });
    }
  });
}

// How long the batches that run now have been running, which compute_ms does not contain yet.
void write_running(JsonWriter& json, const PublishedPipe& pipe, Nanoseconds moment) {
  json.object([&] {
    for (const auto& [name, times] : *pipe.times) {
      Nanoseconds total = 0;
      times.threads.for_each([&](int, Nanoseconds since) { total += std::max<Nanoseconds>(0, moment - since); });
      json.key(name);
      json.value(static_cast<double>(total) / 1e6);
    }
  });
}

void write_pipe(JsonWriter& json, const PublishedPipe& pipe, Nanoseconds moment) {
  const double uptime = static_cast<double>(moment - pipe.opened_at) / 1e9;
  json.object([&] {
    json.key("label");
    json.value(std::string_view(pipe.label));
    json.key("opened_ns");
    json.value(static_cast<std::uint64_t>(pipe.opened_at));
    json.key("uptime_s");
    json.value(uptime);
    json.key("description");
    json.raw(pipe.description);
    json.key("stats");
    json.object([&] {
      for (const auto& [name, node] : *pipe.stats) {
        json.key(name);
        write_node(json, pipe, name, node, uptime);
      }
    });
    json.key("running_ms");
    write_running(json, pipe, moment);
    json.key("threads");
    write_threads(json, pipe, moment);
  });
}

}  // namespace

std::string status_json() {
  Published& shown = published.get();
  JsonWriter json;
  MutexLock lock(shown.mutex);
  const Nanoseconds moment = now();
  json.object([&] {
    shown.mutex.assert_held();
    json.key("pid");
    json.value(static_cast<int>(getpid()));
    json.key("pipes");
    json.array([&] {
      shown.mutex.assert_held();
      for (const auto& pipe : shown.pipes) write_pipe(json, *pipe, moment);
    });
  });
  return json.take();
}

void publish(std::shared_ptr<const PublishedPipe> pipe) noexcept {
  if (!is_enabled()) return;
  try {
    Published& shown = published.get();
    {
      MutexLock lock(shown.mutex);
      shown.pipes.push_back(std::move(pipe));
    }
    MutexLock lock(shown.changes);
    if (!shown.server) shown.server = Server::start();
  } catch (...) {  // no memory, no thread
  }
}

void set_label(PublishedPipe& pipe, std::string label) {
  MutexLock lock(published.get().mutex);
  pipe.label = std::move(label);
}

void withdraw(const PublishedPipe& pipe) noexcept {
  Published* const shown = published.find();
  if (!shown) return;
  {
    MutexLock lock(shown->mutex);
    const auto found =
        std::find_if(shown->pipes.begin(), shown->pipes.end(), [&](const auto& each) { return each.get() == &pipe; });
    if (found == shown->pipes.end()) return;
    shown->pipes.erase(found);
  }
  MutexLock lock(shown->changes);
  {
    MutexLock reading(shown->mutex);
    if (!shown->pipes.empty()) return;
  }
  shown->server = nullptr;
}

}  // namespace hami
