// The stages of a connection.
#include "connection.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <utility>

#include "access.hpp"
#include "chunks.hpp"
#include "expand.hpp"
#include "loop.hpp"

namespace hami_serve {
namespace {

constexpr std::size_t kMaxPieces = 64;        // of one writev
constexpr std::size_t kMaxWritten = 1 << 20;  // bytes of one writev: other connections come between two
constexpr std::size_t kJsonCost = 8;          // bytes for one of JSON, of its tensors and of the parser, as in Python
constexpr std::int32_t kMaxHops = 16;         // after which a connection stays in Python

constexpr std::int32_t kSuccess = 200;
constexpr std::int32_t kTimeout = 408;
constexpr std::int32_t kFault = 500;
constexpr std::int32_t kStopped = 503;

constexpr std::string_view kLastChunk = "\r\n0\r\n\r\n";  // behind another one
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kLive = "/v2/health/live";
constexpr std::string_view kReady = "/v2/health/ready";

bool is_loopback(std::string_view host) noexcept {
  const std::string_view name = host.substr(0, host.rfind(':'));
  return name == "127.0.0.1" || name == "localhost" || name == "[::1]";
}

bool is_any(const std::vector<std::string>& origins) noexcept { return origins.size() == 1 && origins[0] == "*"; }

// Whether a page that a browser names may use the server; Python says why not.
bool may_use(const Head& head, const Limits& limits) noexcept {
  if (head.origin.empty()) return false;
  return is_any(limits.origins) ||
         std::find(limits.origins.begin(), limits.origins.end(), head.origin) != limits.origins.end();
}

// What lets a page read the answer, as the middleware of CORS in Python writes it.
std::string lines_for_pages(const Head& head, const Limits& limits) {
  constexpr std::string_view kAllow = "\r\naccess-control-allow-origin: ";
  std::string lines;
  if (limits.origins.empty()) return lines;
  const std::string exposed = "\r\naccess-control-expose-headers: " + limits.exposed;
  if (!head.origin.empty() && is_any(limits.origins))
    ((lines += kAllow) += '*') += exposed;
  else if (!head.origin.empty())
    ((lines += exposed) += kAllow) += head.origin;
  return lines += "\r\nvary: Origin";
}

bool may_answer(const Head& head, const Limits& limits) noexcept {
  if (head.from_page && !may_use(head, limits)) return false;
  if (!limits.authorization.empty()) return same(head.authorization, limits.authorization);
  return !limits.only_loopback || is_loopback(head.host);
}

// Whether the line of a request can have this value of a header.
bool is_loggable(std::string_view id) noexcept {
  return id.size() <= kMaxId &&
         std::all_of(id.begin(), id.end(), [](char each) { return static_cast<unsigned char>(each) < 0x80; });
}

// Null: Python writes the line of the request.
std::unique_ptr<Entry> entry_of(const Head& head) {
  auto entry = std::make_unique<Entry>();
  bool is_usual = is_loggable(head.id);
  for (std::size_t i = 0; i < head.trace.size(); ++i) {
    is_usual = is_usual && is_loggable(head.trace[i]);
    entry->trace[i] = head.trace[i];
  }
  entry->path = head.path;
  entry->id = head.id;
  entry->begun = now_ns();
  return is_usual ? std::move(entry) : nullptr;
}

// Of an answer of Python; 500: it has made none.
std::int32_t status_of(std::string_view answer) noexcept {
  constexpr std::size_t kBefore = sizeof "HTTP/1.1 " - 1;
  std::int32_t status = kFault;
  if (answer.size() > kBefore) std::from_chars(answer.data() + kBefore, answer.data() + answer.size(), status);
  return status;
}

// Expands a body whose request has `own` bytes; it needs `charged` beside them. Null: Python reads the body.
std::shared_ptr<Body> expanded_body(Door& door, const Body& body, Head& head, std::int64_t own, std::int64_t& charged) {
  const auto charge = [&](std::int64_t bytes) {
    if (!door.charge(bytes, own + charged)) return false;
    charged += bytes;
    return true;
  };
  // By reference: a function with a copy of `charge` would need memory here, where none may be left.
  const auto most = static_cast<std::size_t>(door.limits().max_body);
  std::shared_ptr<Body> found = expanded(body, head, most, std::ref(charge));
  if (!found) return nullptr;
  head.length = found->size();
  const auto size = static_cast<std::int64_t>(head.length);
  door.discharge(std::exchange(charged, size) - size);  // the last piece was smaller than its charge
  if (is_long_to_read(head) && !charge(static_cast<std::int64_t>(kJsonCost) * size)) return nullptr;
  return found;
}

}  // namespace

Connection::Connection(Loop& loop, int fd, std::int32_t hops, std::string data)
    : loop_(loop), fd_(fd), hops_(hops), held_(std::move(data)) {
  expect_request();
}

Connection::~Connection() {
  if (fd_ >= 0) ::close(fd_);
  recharge(0);
  loop_.door().count_connection(-1);
}

void Connection::watch(std::uint32_t events) {
  if (events == events_) return;
  events_ = events;
  loop_.watch(*this, events);
}

// Lets the request have so many bytes from now on, also if there are too few.
void Connection::recharge(std::int64_t bytes) noexcept {
  loop_.door().discharge(std::exchange(charged_, bytes) - bytes);
}

void Connection::handle(std::uint32_t events) {
  if (stage_ == Stage::kGone) return;
  if (events & (EPOLLHUP | EPOLLERR)) return leave();
  if (stage_ == Stage::kWriting) return (events & EPOLLOUT) ? write_some() : watch(EPOLLOUT);
  if (stage_ == Stage::kClosing) return drop();
  if (stage_ == Stage::kIdle && !held_.empty()) return;  // what was received before comes first, from `go_on`
  if (stage_ != Stage::kRunning) return receive();
  if (events & EPOLLRDHUP) {
    has_left_ = true;
    deadline_ = now_ns() + loop_.door().limits().times.half_closed;
    loop_.look_at(deadline_);
    return watch(0);
  }
  watch(EPOLLRDHUP);  // the next request waits
}

void Connection::receive() {
  const bool in_place = stage_ == Stage::kBody && !head_.is_chunked;
  char* const memory = in_place ? body_->data() + body_size_ : loop_.received();
  const std::size_t space = in_place ? body_->size() - body_size_ : Loop::kReceived;
  const ssize_t size = ::recv(fd_, memory, space, 0);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (size <= 0) return leave();
  const std::string_view data(memory, static_cast<std::size_t>(size));
  if (stage_ == Stage::kIdle) return read_request(data);
  deadline_ = now_ns() + loop_.door().limits().times.body;
  if (head_.is_chunked) return read_chunks(data);
  body_size_ += data.size();
  if (body_size_ == body_->size()) start();
}

void Connection::go_on() {
  if (stage_ != Stage::kIdle) return;
  watch(EPOLLIN | EPOLLRDHUP);  // while a request runs too: its client may leave
  if (held_.empty()) return;
  const std::string data = std::exchange(held_, {});
  read_request(data);
}

// `data` begins a request.
void Connection::read_request(std::string_view data) {
  const std::optional<Head> head = read_head(data);
  if (!head || !may_answer(*head, loop_.door().limits())) return hand_over(data);
  const std::string_view rest = data.substr(head->size);
  is_last_ = head->is_last;
  for_pages_ = lines_for_pages(*head, loop_.door().limits());
  std::shared_ptr<const Table> table = loop_.door().table();
  if (!head->is_post) {
    const bool is_live = head->path == kLive;
    if (table->traces || (!is_live && (head->path != kReady || !table->ready))) return hand_over(data);
    if (head->length > 0 || head->is_chunked) return hand_over(data);
    held_.assign(rest);
    loop_.door().count_answer();
    return write_for_pages(render_probe(is_live ? "{\"live\": true}" : "{\"ready\": true}"));
  }
  const auto found = table->by_path.find(std::string(head->path));
  const auto most = static_cast<std::size_t>(loop_.door().limits().max_body);
  if (found == table->by_path.end() || head->length > most) return hand_over(data);
  if (head->length == 0 && !head->is_chunked) return hand_over(data);
  const bool has_size = !head->is_chunked && head->coding == Coding::kNone;
  if (has_size && head->json_length && *head->json_length > head->length) return hand_over(data);
  if (table->keeps_journal) {
    entry_ = entry_of(*head);
    if (!entry_) return hand_over(data);
  }
  const auto length = static_cast<std::int64_t>(head->length);
  if (!loop_.door().charge(length)) return hand_over(data);
  charged_ = length;
  head_text_.assign(data.substr(0, head->size));
  begin_body(*head, rest, std::move(table), found->second);
}

// Lets the client send the body that it holds back; `expect` is where the head has the value of that header. False: the request has
// ended here.
bool Connection::ask_for_body(std::size_t expect) {
  constexpr std::string_view kLineEnd = "\r\n";
  const ssize_t sent = ::send(fd_, kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(kContinue.size())) {
    const std::size_t line = head_text_.rfind(kLineEnd, expect);
    head_text_.erase(line, head_text_.find(kLineEnd, expect) - line);
    return true;
  }
  const bool is_full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  is_full ? hand_over({}) : leave();  // Python waits until the client takes its answers
  return false;
}

void Connection::begin_body(const Head& head, std::string_view rest, std::shared_ptr<const Table> table,
                            ModelPtr model) {
  head_ = head;
  head_.path = head_.authorization = head_.host = head_.expect = head_.id = head_.origin = {};
  head_.trace = {};
  table_ = std::move(table);
  model_ = std::move(model);
  const std::string_view first = rest.substr(0, head.length);
  const std::size_t before = head.json_length.value_or(0);
  body_size_ = chunk_left_ = 0;
  try {
    body_ = head.is_chunked ? std::make_shared<Body>(before) : std::make_shared<Body>(head.length, before);
    if (head.is_chunked) body_->grow(0);
  } catch (const std::bad_alloc&) {
    body_ = nullptr;
    return hand_over(rest);
  }
  stage_ = Stage::kBody;
  body_begun_ = now_ns();
  deadline_ = body_begun_ + loop_.door().limits().times.body;
  watch(EPOLLIN | EPOLLRDHUP);
  const bool waits = !head.expect.empty() && rest.empty();  // else a part of the body has come
  if (waits && !ask_for_body(head.size - static_cast<std::size_t>(rest.data() - head.expect.data()))) return;
  if (head.is_chunked) return read_chunks(rest);
  std::memcpy(body_->data(), first.data(), first.size());
  body_size_ = first.size();
  held_.assign(rest.substr(first.size()));
  if (body_size_ == body_->size()) start();
}

// `data` continues a body in chunks, behind the part of a line that is held. What native code does not read is at a line.
void Connection::read_chunks(std::string_view data) {
  const std::string held = std::exchange(held_, {});
  std::string joined;
  if (!held.empty()) data = (joined = held).append(data);
  Door& door = loop_.door();
  const auto most = static_cast<std::size_t>(door.limits().max_body);
  for (;;) {
    const std::string_view part = data.substr(0, chunk_left_);
    std::memcpy(body_->data() + body_size_, part.data(), part.size());
    body_size_ += part.size();
    chunk_left_ -= part.size();
    data.remove_prefix(part.size());
    if (chunk_left_ > 0) return;
    const ChunkLine line = read_chunk_line(data, body_size_ == 0);
    if (line.kind == ChunkLine::Kind::kIncomplete) return void(held_ = data);
    if (line.kind == ChunkLine::Kind::kUnusual || line.chunk > most - body_size_) return hand_over(data);
    if (line.chunk == 0) {
      held_ = data.substr(line.size);
      head_.length = body_size_;
      body_->end(body_size_);
      return start();
    }
    const auto chunk = static_cast<std::int64_t>(line.chunk);
    if (!door.charge(chunk, charged_)) return hand_over(data);
    charged_ += chunk;
    body_->grow(body_size_ + line.chunk);
    chunk_left_ = line.chunk;
    data.remove_prefix(line.size);
  }
}

void Connection::start() {
  stage_ = Stage::kRunning;
  deadline_ = 0;
  if (head_.coding != Coding::kNone || is_long_to_read(head_)) return read_aside();
  std::optional<Inference> inference = read_inference(head_, body_, *model_, *table_);
  if (!inference) return hand_over({});
  auto request = std::make_shared<Request>();
  request->loop = &loop_;
  request->asker = this;
  request->model = model_;
  request->inference = std::move(*inference);
  run(std::move(request));
}

// Lets the worker expand and read the body.
void Connection::read_aside() {
  const auto cost = static_cast<std::int64_t>(kJsonCost * body_->size());
  const bool is_coded = head_.coding != Coding::kNone;
  if (!is_coded) {
    if (!loop_.door().charge(cost, charged_)) return hand_over({});
    charged_ += cost;
  }
  auto request = std::make_shared<Request>();
  request->loop = &loop_;
  request->asker = this;
  request->model = model_;
  const auto read = [request, is_coded, &door = loop_.door(), own = charged_, head = head_, body = body_,
                     table = table_]() mutable {
    if (is_coded) body = expanded_body(door, *body, head, own, request->charged_aside);
    std::optional<Inference> inference;
    if (body) inference = read_inference(head, body, *request->model, *table);
    request->is_usual = inference.has_value();
    if (inference) request->inference = std::move(*inference);
  };
  loop_.do_aside(request, read, [this, request] {
    request_ = nullptr;
    charged_ += std::exchange(request->charged_aside, 0);
    request->is_usual ? run(request) : hand_over({});
  });
  request_ = request.get();
}

void Connection::run(std::shared_ptr<Request> request) {
  if (entry_ && !record(*request)) return hand_over({});
  request_ = request.get();
  if (loop_.submit(std::move(request))) return;
  request_ = nullptr;
  hand_over({});
}

// Lets the core record the nodes of a request for the log. False: Python writes its line.
bool Connection::record(Request& request) {
  if (!is_raw(head_)) entry_->id = request.inference.id;
  return entry_->record(request.model, request.inference);
}

// Lets the worker render the answer, which needs at most `cost` bytes. Python says it if they are too many.
void Connection::render_aside(std::shared_ptr<Request> request, std::int64_t cost) {
  if (!loop_.door().charge(cost, charged_)) return leave_to_python(std::move(request));
  charged_ += cost;
  const auto answer = std::make_shared<std::optional<Answer>>();
  const auto render = [request, answer] {
    *answer = render_outputs(*request->model, request->inference, request->keys);
  };
  loop_.do_aside(request, render, [this, request, answer] { rendered(request, std::move(*answer)); });
}

void Connection::cancel() {
  if (request_ && request_->started) request_->model->caller().table->cancel(request_->started);
}

void Connection::forget_request() noexcept {
  body_ = nullptr;
  head_text_.clear();
  model_ = nullptr;
  table_ = nullptr;
}

// Lets the log have the request, which is answered, or whose client has left.
void Connection::end_entry() noexcept {
  if (entry_) loop_.door().journal().add(std::move(entry_));
}

void Connection::completed(std::shared_ptr<Request> request, bool failed) {
  forget_request();
  if (entry_) entry_->has_run(*request);
  const std::int64_t cost = failed ? 0 : size_of_long(*request->model, request->inference, request->keys);
  if (cost > 0) return render_aside(std::move(request), cost);
  std::optional<Answer> answer;
  if (!failed) answer = render_outputs(*request->model, request->inference, request->keys);
  rendered(std::move(request), std::move(answer));
}

// Lets Python answer a request that has run.
void Connection::leave_to_python(std::shared_ptr<Request> request) {
  request->charged = charged_;
  loop_.door().leave_to_python(std::move(request));
  is_in_python_ = true;
}

void Connection::rendered(std::shared_ptr<Request> request, std::optional<Answer> answer) {
  if (!answer) return leave_to_python(std::move(request));
  request_ = nullptr;
  loop_.door().count_answer();
  if (entry_) entry_->status = kSuccess;
  write_for_pages(std::move(*answer));
}

void Connection::answer(std::string bytes) {
  if (entry_) entry_->status = status_of(bytes);
  if (bytes.empty()) return close();
  is_in_python_ = false;
  request_ = nullptr;
  Answer answer;
  answer.head = std::move(bytes);
  write_for_pages(std::move(answer));
}

void Connection::write_for_pages(Answer answer) {
  if (!for_pages_.empty()) add_header_lines(answer, for_pages_);
  write(std::move(answer));
}

void Connection::write(Answer answer) {
  stage_ = Stage::kWriting;
  answer_ = std::move(answer);
  recharge(static_cast<std::int64_t>(answer_.size()));
  if (loop_.door().draining() && !has_more()) is_last_ = true;
  if (is_last_) add_header_lines(answer_, "\r\nconnection: close");
  piece_ = offset_ = taken_ = 0;
  deadline_ = now_ns() + loop_.door().limits().times.write;
  write_some();
}

void Connection::write_some() {
  iovec pieces[kMaxPieces];
  const std::size_t count = 1 + answer_.tail.size();
  while (piece_ < count) {
    std::size_t used = 0;
    std::size_t size = 0;
    for (std::size_t i = piece_; i < count && used < kMaxPieces && size < kMaxWritten; ++i) {
      std::string_view piece = i == 0 ? std::string_view(answer_.head) : answer_.tail[i - 1];
      if (i == piece_) piece.remove_prefix(offset_);
      const std::size_t taken = std::min(piece.size(), kMaxWritten - size);
      pieces[used++] = {const_cast<char*>(piece.data()), taken};
      size += taken;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = used;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return watch(EPOLLOUT);
    if (sent < 0) return close();
    taken_ += static_cast<std::size_t>(sent);
    offset_ += static_cast<std::size_t>(sent);
    while (piece_ < count) {
      const std::size_t own = piece_ == 0 ? answer_.head.size() : answer_.tail[piece_ - 1].size();
      if (offset_ < own) break;
      offset_ -= own;
      ++piece_;
    }
    if (piece_ < count) return watch(EPOLLOUT);  // other connections come first
  }
  answered();
}

void Connection::answered() {
  answer_ = {};
  recharge(0);
  end_entry();
  if (is_last_) return end();
  expect_request();
  watch(EPOLLIN | EPOLLRDHUP);  // also after the end of a client, which may have sent more before
  if (!held_.empty()) loop_.again(*this);
}

void Connection::expect_request() {
  const Times& times = loop_.door().limits().times;
  stage_ = Stage::kIdle;
  const bool draining = loop_.door().draining();
  deadline_ = now_ns() + (draining ? times.last_request : times.idle);
  if (draining) loop_.look_at(deadline_);
}

// Whether something of another request has come.
bool Connection::has_more() const noexcept {
  char first;
  return !held_.empty() || ::recv(fd_, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

// Sends the end of the connection, and waits for that of the client.
void Connection::end() {
  const Times& times = loop_.door().limits().times;
  ::shutdown(fd_, SHUT_WR);
  held_.clear();
  stage_ = Stage::kClosing;
  const bool draining = loop_.door().draining();
  deadline_ = now_ns() + (draining ? times.last_request : times.linger);
  if (draining) loop_.look_at(deadline_);
  watch(EPOLLIN | EPOLLRDHUP);
}

void Connection::drop() {
  const ssize_t size = ::recv(fd_, loop_.received(), Loop::kReceived, 0);
  if (size == 0 || (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) close();
}

void Connection::end_if_idle() {
  if (stage_ == Stage::kIdle) expect_request();
}

void Connection::check_deadline(std::int64_t now) {
  if (deadline_ == 0) return;
  const Times& times = loop_.door().limits().times;
  if (stage_ == Stage::kBody) {
    const std::int64_t counted = now - body_begun_ - times.rate_after;
    if (counted > 0 && static_cast<double>(body_size_) * kSecond < static_cast<double>(counted) * kMinRate)
      return reject("the body came with less than 16384 bytes per second");
  }
  if (now < deadline_) return loop_.look_at(deadline_);
  switch (stage_) {
    case Stage::kIdle: return end();
    case Stage::kBody: return reject("the request did not continue for " + seconds(times.body) + " s");
    case Stage::kRunning:
      if (has_left_) leave();
      return;
    case Stage::kWriting:
      if (taken_ < kMinTaken) return close();
      taken_ = 0;
      deadline_ = now + times.write;
      return;
    default: close();
  }
}

// Answers a request whose body does not come, as the last one of the connection.
void Connection::reject(const std::string& text) {
  loop_.door().count_timeout();
  if (entry_) entry_->status = kTimeout;
  forget_request();
  is_last_ = true;
  write(render_timeout(text));
}

// Lets the connection go on in Python, with what was read of a request and `rest`.
void Connection::hand_over(std::string_view rest) {
  auto handed = std::make_unique<Handed>();
  const bool is_chunked = body_ && head_.is_chunked;
  std::string line;  // the chunks that have come become one
  if (is_chunked && body_size_ > 0) line = first_chunk_line(body_size_);
  handed->data.reserve(head_text_.size() + line.size() + body_size_ + kLastChunk.size() + rest.size() + held_.size());
  (handed->data = head_text_) += line;
  if (body_) handed->data.append(body_->data(), body_size_);
  if (is_chunked && stage_ == Stage::kRunning) handed->data += body_size_ > 0 ? kLastChunk : kLastChunk.substr(2);
  (handed->data += rest) += held_;
  loop_.remove(*this);  // before the descriptor belongs to another thread
  handed->fd = std::exchange(fd_, -1);
  handed->hops = hops_ < kMaxHops ? hops_ + 1 : hops_;
  handed->charged = std::exchange(charged_, 0);
  body_ = nullptr;
  entry_ = nullptr;
  stage_ = Stage::kGone;
  loop_.door().hand_over(std::move(handed));
}

// Ends the connection, as its client has done.
void Connection::leave() noexcept {
  if (stage_ == Stage::kBody || (stage_ == Stage::kRunning && !is_in_python_)) loop_.door().count_left();
  end_entry();
  close();
}

void Connection::close() noexcept {
  cancel();  // which needs no memory
  if (request_) {
    request_->asker = nullptr;
    if (request_->is_aside) request_->charged = std::exchange(charged_, 0);
  }
  request_ = nullptr;
  if (entry_ && entry_->status == kClientLeft) entry_->status = loop_.door().draining() ? kStopped : kFault;
  end_entry();
  stage_ = Stage::kGone;
  loop_.remove(*this);
}

}  // namespace hami_serve
