// Pipes for C++17 programs without Python. Link with libhami.a (built with -DHAMI_EMBED=ON), threads and dl.
//
//   #include <hami/embed.hpp>
//
//   hami::load_plugin("plugins/addone.so");
//   const hami::Pipe pipe("AddOne(step=2)");
//   std::cout << pipe({{"data", 40}}).at("result").as_int();
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hami/embed.h"
#include "hami/sdk/shared.hpp"

namespace hami {
inline namespace sdk {

extern "C" HAMI_SDK_OWN_ inline const char HAMI_SDK_MARK_ = 0;

// Initializes the host table before main(), so that values can be created from then on.
HAMI_SDK_OWN_ inline const bool has_embedded_host = (host() = *hami_embedded_host(), true);

// The keys of a request or of a table of a configuration.
using Keys = std::map<std::string, Value>;

inline Value to_value(const Keys& keys) { return Value::dict({keys.begin(), keys.end()}); }
inline Keys to_keys(const Value& dict) {
  Keys keys;
  for (auto& [key, value] : dict.as_dict()) keys.emplace(key, value);
  return keys;
}

inline std::vector<std::string> to_texts(const Value& list) {
  std::vector<std::string> texts;
  for (const Value& text : list.as_list()) texts.emplace_back(text.as_text());
  return texts;
}

// Loads a plugin's library, registers its backends and returns their names.
inline std::vector<std::string> load_plugin(const std::string& path) {
  Value names;
  check(hami_load_plugin(path.c_str(), &names.raw()));
  return to_texts(names);
}

// A built pipe. Thread-safe. Every function throws hami::Error on failure.
class Pipe {
 public:
  // Builds a pipe from an expression, or from nodes and their keys as in a configuration file:
  //   hami::Pipe({{"detect", hami::to_value({{"backend", "Detect"}, {"max", 8}})}})
  explicit Pipe(const std::string& expression) : pipe_(make(expression), hami_pipe_free) {}
  explicit Pipe(const Keys& config) : pipe_(make(to_value(config)), hami_pipe_free) {}

  // Runs one request and returns its keys after the run, with `result`. `timeout` is in nanoseconds.
  Keys operator()(const Keys& request, std::int64_t timeout = kNever) const {
    Value response;
    check(hami_pipe_call(pipe_.get(), &to_value(request).raw(), timeout, &response.raw()));
    return to_keys(response);
  }

  // Starts one request and returns at once.
  std::future<Keys> submit(const Keys& request, std::int64_t timeout = kNever) const {
    auto promise = std::make_unique<std::promise<Keys>>();
    std::future<Keys> future = promise->get_future();
    check(hami_pipe_submit(pipe_.get(), &to_value(request).raw(), timeout, fulfil, promise.get()));
    promise.release();
    return future;
  }

  // Closes the pipe: finishes open requests within `timeout` nanoseconds, then fails the rest. Returns the names of the
  // backends that did not return in time. The destructor closes an open pipe with a timeout of ten seconds.
  std::vector<std::string> close(std::int64_t timeout = kNever) const {
    Value abandoned;
    check(hami_pipe_close(pipe_.get(), timeout, &abandoned.raw()));
    return to_texts(abandoned);
  }

 private:
  static hami_pipe* make(const Value& config) {
    hami_pipe* pipe = nullptr;
    check(hami_pipe_new(&config.raw(), &pipe));
    return pipe;
  }
  static void fulfil(void* data, hami_error* error, const hami_value* request) {
    const std::unique_ptr<std::promise<Keys>> promise(static_cast<std::promise<Keys>*>(data));
    try {
      check(error);
      promise->set_value(to_keys(Value::share(*request)));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }

  std::unique_ptr<hami_pipe, void (*)(hami_pipe*)> pipe_;
};

}  // namespace sdk
}  // namespace hami
