#include "parent_watch.hpp"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace hami_process {
namespace {

constexpr int kParentEnded = 75;  // EX_TEMPFAIL

void* watch(void* given) {
  const int descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(given));
  pollfd peer{descriptor, POLLRDHUP, 0};
  for (;;) {
    if (poll(&peer, 1, -1) < 0 && errno == EINTR) continue;
    _exit(kParentEnded);
  }
}

}  // namespace

bool end_with_parent(std::int32_t parent, std::int32_t socket) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return false;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the threads of Python
  pthread_t thread;
  if (pthread_create(&thread, nullptr, watch, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket))) == 0)
    pthread_detach(thread);  // without it, the kernel's signal remains
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

}  // namespace hami_process
