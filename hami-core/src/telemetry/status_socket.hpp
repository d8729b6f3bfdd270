// StatusSocket: the address at which a process tells other processes of the same user about its pipes.
//
// A UNIX socket in $XDG_RUNTIME_DIR/hami, else in /tmp/hami-<user id>, named after the process. Only its user may open the folder.
#pragma once

#include <string>

namespace hami {

class StatusSocket {
 public:
  // Empty if there is no safe folder for it: then there is nothing to connect to.
  static StatusSocket open() noexcept;
  StatusSocket() = default;
  StatusSocket(StatusSocket&& other) noexcept;
  StatusSocket& operator=(StatusSocket&&) = delete;
  ~StatusSocket();

  explicit operator bool() const noexcept { return listening_ >= 0; }
  // Sends what `answer` returns to each process of this user that connects, until `close`.
  void serve(std::string (*answer)()) const noexcept;
  // Removes the address, and ends `serve`; from any thread.
  void close() const noexcept;

 private:
  void withdraw() const noexcept;
  void send_all(int connection, const std::string& text) const noexcept;

  int listening_ = -1;
  int closing_ = -1;  // an eventfd
  std::string path_;
};

}  // namespace hami
