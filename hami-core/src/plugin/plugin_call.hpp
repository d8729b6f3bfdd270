// Which plugin runs: by the function that a thread is in, or by the address of an instruction.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace hami {

// The code of loaded plugins in memory: which plugin an instruction belongs to, also in a thread that the plugin started.
struct PluginCode {
  std::uintptr_t begin;
  std::uintptr_t end;
  const std::string library;  // the path of the file
  const std::string plugin;   // such as "plugin acme-cv (/site/acme/cv.so)"
  const PluginCode* next;     // recorded earlier
};

// Records the code of the library that contains `function`. The last record of a library counts. It is never removed, as
// libraries of plugins are never unloaded.
void record_plugin_code(const void* function, const std::string& library, const std::string& plugin);

// Async-signal-safe. Null: the address is not in code of a plugin.
const PluginCode* find_plugin_code(std::uintptr_t address) noexcept;

// PluginCall: which function of which native plugin a thread runs, so that a crash in it names the plugin.
// A scope in which the thread runs a function of a plugin. Scopes nest. The texts must outlive the scope: `function`, such as
// "forward", and its `owner`, such as "backend Crop of plugin acme-cv, /site/acme/cv.so".
class PluginCall {
 public:
  PluginCall(const char* function, const char* owner) noexcept : PluginCall(this_thread(), function, owner) {}
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
  ~PluginCall() { thread_.innermost = outer_; }

  // A scope inside of one of a plugin, in which the core runs again.
  static PluginCall of_core() noexcept { return {nullptr, nullptr}; }

  // The owner of the function that the current thread runs; without one, "a native plugin".
  static std::string owner();

 private:
  friend void write_crash_report(int signal, std::uintptr_t instruction) noexcept;

  struct Thread {
    const PluginCall* innermost = nullptr;
    bool is_registered = false;  // the signal handler finds it
  };
  static Thread& this_thread() noexcept;

  PluginCall(Thread& thread, const char* function, const char* owner) noexcept
      : thread_(thread), outer_(std::exchange(thread.innermost, this)), function_(function), owner_(owner) {}

  Thread& thread_;
  const PluginCall* const outer_;
  const char* const function_;
  const char* const owner_;
};

// Throws Error(kPlugin) about the exception that is being handled, which left a function of a plugin; call it only inside a catch
// block. Passes on the exception by which glibc cancels a thread.
[[noreturn]] void throw_escaped_exception(const char* function, const char* owner);

// Runs a function of a plugin, which exceptions must not leave. One that does and arrives here becomes an error that names the
// function. If the plugin has another C++ runtime than the core, the exception ends the process, with the report below.
template <class Body>
auto call_plugin(const char* function, const char* owner, Body&& body) {
  const PluginCall call(function, owner);
  try {
    return body();
  } catch (...) {
    throw_escaped_exception(function, owner);
  }
}

// Async-signal-safe. Writes a line about the function that the current thread runs, if it is one of a plugin, and about the
// plugin whose code contains the instruction, if it is another one or the plugin started the thread.
void write_crash_report(int signal, std::uintptr_t instruction) noexcept;

// From now on, a fatal signal in a function or in code of a plugin writes a line that names it to standard error. The previous handler of
// the signal, or the default, then follows. Has an effect once; a handler that is set later replaces the report or calls it.
void report_crashes();

}  // namespace hami
