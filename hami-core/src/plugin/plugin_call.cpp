// Which plugin runs, and the report of a fatal signal in one.
#include "plugin/plugin_call.hpp"

#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>

#include "plugin/handles.hpp"

namespace hami {

// ---- A list of address ranges, which a signal handler can read while a thread adds to it.

namespace {

std::atomic<const PluginCode*> newest_code{nullptr};
static_assert(std::atomic<const PluginCode*>::is_always_lock_free, "a signal handler reads it");

struct CodeRange {
  std::uintptr_t function;  // in the wanted library
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// The executable segments of a library, from the first to the last, if they contain the wanted function.
int match_library(dl_phdr_info* info, std::size_t, void* wanted) {
  auto& range = *static_cast<CodeRange*>(wanted);
  CodeRange found{range.function, UINTPTR_MAX, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    found.begin = std::min(found.begin, begin);
    found.end = std::max(found.end, begin + segment.p_memsz);
  }
  if (range.function < found.begin || range.function >= found.end) return 0;
  range = found;
  return 1;
}

}  // namespace

void record_plugin_code(const void* function, const std::string& library, const std::string& plugin) {
  CodeRange range{reinterpret_cast<std::uintptr_t>(function)};
  if (!dl_iterate_phdr(match_library, &range)) return;
  const PluginCode* const known = find_plugin_code(range.function);
  if (known && known->plugin == plugin) return;
  auto code = std::make_unique<PluginCode>(PluginCode{range.begin, range.end, library, plugin, newest_code.load()});
  while (!newest_code.compare_exchange_weak(code->next, code.get())) {
  }
  (void)code.release();
}

const PluginCode* find_plugin_code(std::uintptr_t address) noexcept {
  for (const PluginCode* code = newest_code.load(std::memory_order_acquire); code; code = code->next)
    if (address >= code->begin && address < code->end) return code;
  return nullptr;
}

// ---- The functions of plugins that threads run, and the report of a fatal signal in one of them.

namespace {

struct FatalSignal {
  int number;
  const char* name;
  struct sigaction previous;
};

FatalSignal fatal_signals[] = {{SIGSEGV, "SIGSEGV", {}},
                               {SIGBUS, "SIGBUS", {}},
                               {SIGFPE, "SIGFPE", {}},
                               {SIGILL, "SIGILL", {}},
                               {SIGABRT, "SIGABRT", {}}};

// The PluginCall::Thread of each thread that has called a plugin. A signal handler cannot read the thread_local itself: its first
// use in a thread allocates memory.
pthread_key_t thread_key() noexcept {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    return pthread_key_create(&made, nullptr) == 0 ? made : PTHREAD_KEYS_MAX;
  }();
  return key;
}

// A line of text in a fixed buffer: signal handlers must not allocate.
class Line {
 public:
  Line& operator<<(const char* text) noexcept {
    const std::size_t size = std::min(std::strlen(text), sizeof data_ - size_);
    std::memcpy(data_ + size_, text, size);
    size_ += size;
    return *this;
  }
  void write() const noexcept {
    const ssize_t ignored = ::write(STDERR_FILENO, data_, size_);
    (void)ignored;
  }

 private:
  char data_[1024];
  std::size_t size_ = 0;
};

// The instruction that caused the signal; 0 if a process or thread sent it, such as by abort(), or the machine is unknown.
std::uintptr_t faulting_instruction(const siginfo_t& info, const void* context) noexcept {
  if (info.si_code <= 0) return 0;
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(machine.pc);
#else
  (void)machine;
  return 0;
#endif
}

// The previous handler follows: with its original context if the faulting instruction runs again, else by a new signal.
void on_fatal_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  for (const FatalSignal& fatal : fatal_signals)
    if (fatal.number == number) sigaction(number, &fatal.previous, nullptr);
  write_crash_report(number, faulting_instruction(*info, context));
  errno = error;
  if (info->si_code <= 0) raise(number);
}

}  // namespace

PluginCall::Thread& PluginCall::this_thread() noexcept {
  thread_local Thread thread;
  if (!thread.is_registered) {
    pthread_setspecific(thread_key(), &thread);
    thread.is_registered = true;
  }
  return thread;
}

std::string PluginCall::owner() {
  const PluginCall* const call = this_thread().innermost;
  return call && call->owner_ ? call->owner_ : "a native plugin";
}

void throw_escaped_exception(const char* function, const char* owner) {
  const Error escaped = current_error();
  throw Error(ErrorCode::kPlugin, std::string(function) + " of " + owner +
                                      " threw an exception, which functions of a plugin must not do: " +
                                      escape_invalid_utf8(escaped.message()));
}

void write_crash_report(int signal, std::uintptr_t instruction) noexcept {
  const auto* const thread = static_cast<const PluginCall::Thread*>(pthread_getspecific(thread_key()));
  const PluginCall* call = thread ? thread->innermost : nullptr;
  if (call && !call->function_) call = nullptr;
  const PluginCode* code = find_plugin_code(instruction);
  if (call && code && std::strstr(call->owner_, code->library.c_str())) code = nullptr;  // the function names it
  if (!call && !code) return;
  Line line;
  for (const FatalSignal& fatal : fatal_signals)
    if (fatal.number == signal) line << "hami: " << fatal.name << " in ";
  if (call) line << call->function_ << " of " << call->owner_;
  if (code) line << (call ? ", in " : "") << "code of " << code->plugin.c_str();
  (line << "\n").write();
}

void report_crashes() {
  static std::once_flag once;
  std::call_once(once, [] {
    thread_key();
    struct sigaction action{};
    action.sa_sigaction = on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (FatalSignal& fatal : fatal_signals) sigaction(fatal.number, &action, &fatal.previous);
  });
}

}  // namespace hami
