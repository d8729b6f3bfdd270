// StatusSocket: its folder, and its connections.
#include "telemetry/status_socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace hami {
namespace {

constexpr int kSendTimeoutMs = 1000;  // for a reader that does not read
constexpr int kRetryMs = 10;          // after a connection that could not be accepted

// The child of a fork must not keep the socket of its parent: a connection to it would never be accepted.
std::atomic<int> to_close_in_child{-1};
void close_in_child() {
  const int listening = to_close_in_child.exchange(-1);
  if (listening >= 0) close(listening);
}
const int registered = pthread_atfork(nullptr, nullptr, close_in_child);

// Whether it is a folder, or became one, that belongs to this user, and that only this user may open.
bool is_private_folder(const std::string& folder) noexcept {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat found{};
  return lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & 0077) == 0;
}

std::string runtime_folder() {
  const char* const given = std::getenv("XDG_RUNTIME_DIR");
  const std::string shared = given ? given : "";
  if (!shared.empty() && shared[0] == '/' && is_private_folder(shared + "/hami")) return shared + "/hami";
  const std::string own = "/tmp/hami-" + std::to_string(geteuid());
  return is_private_folder(own) ? own : std::string();
}

bool is_allowed(int connection) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace

StatusSocket StatusSocket::open() noexcept {
  (void)registered;
  StatusSocket opened;
  try {
    const std::string folder = runtime_folder();
    if (folder.empty()) return opened;
    opened.path_ = folder + "/" + std::to_string(getpid()) + ".sock";
  } catch (...) {  // no memory
    return opened;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (opened.path_.size() >= sizeof address.sun_path) return opened;
  std::memcpy(address.sun_path, opened.path_.c_str(), opened.path_.size());
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  opened.closing_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  unlink(opened.path_.c_str());  // of a process with the same number that was killed
  if (listening < 0 || opened.closing_ < 0 ||
      bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listening, 8) != 0) {
    if (listening >= 0) ::close(listening);
    return opened;
  }
  opened.listening_ = listening;
  to_close_in_child = listening;
  return opened;
}

StatusSocket::StatusSocket(StatusSocket&& other) noexcept
    : listening_(std::exchange(other.listening_, -1)),
      closing_(std::exchange(other.closing_, -1)),
      path_(std::move(other.path_)) {}

StatusSocket::~StatusSocket() {
  if (listening_ >= 0) {
    withdraw();
    ::close(listening_);
  }
  if (closing_ >= 0) ::close(closing_);
}

// At most once has an effect: afterwards the path may be that of another socket.
void StatusSocket::withdraw() const noexcept {
  int expected = listening_;
  if (to_close_in_child.compare_exchange_strong(expected, -1)) unlink(path_.c_str());
}

void StatusSocket::close() const noexcept {
  withdraw();
  const std::uint64_t one = 1;
  const ssize_t written = write(closing_, &one, sizeof one);
  (void)written;  // cannot fail: no other thread writes
}

// Ends early if the reader does not read, or the socket closes.
void StatusSocket::send_all(int connection, const std::string& text) const noexcept {
  std::size_t sent = 0;
  while (sent < text.size()) {
    pollfd waiting[] = {{connection, POLLOUT, 0}, {closing_, POLLIN, 0}};
    const int ready = poll(waiting, 2, kSendTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || waiting[1].revents) return;
    const ssize_t count = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

void StatusSocket::serve(std::string (*answer)()) const noexcept {
  pollfd waiting[] = {{listening_, POLLIN, 0}, {closing_, POLLIN, 0}};
  for (;;) {
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return;
    if (waiting[1].revents) return;
    const int connection = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {  // the reader has left, or the process has no file descriptor for it
      poll(&waiting[1], 1, kRetryMs);
      continue;
    }
    try {
      if (is_allowed(connection)) send_all(connection, answer());
    } catch (...) {  // no memory: the reader gets nothing
    }
    ::close(connection);
  }
}

}  // namespace hami
