#include "ridgeline/serve/connection.h"

#include <fmt/compile.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <iterator>
#include <limits>
#include <thread>

#include "ridgeline/serve/inflate.h"

namespace ridgeline::serve {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
constexpr std::uint32_t kMostHeader = 1 << 14;
constexpr size_t kKeptBytes = size_t{1} << 20;  // of buffers kept for the next request
constexpr auto kSweepTime = std::chrono::milliseconds(100);
constexpr auto kEndTime = std::chrono::seconds(2);  // for a peer to receive the last response

std::string_view view(const beast::string_view& text) { return {text.data(), text.size()}; }

// The target of a request from a proxy may name the server before the path.
std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find('/', scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

template <typename T>
void forget_large(T& memory) {
  if (memory.capacity() > kKeptBytes / sizeof(memory[0])) T().swap(memory);
}

}  // namespace

void IoThread::start_sweeping() {
  swept_ = Clock::now();
  set_timer();
}

// A wait before this one ends with an error.
void IoThread::set_timer() {
  timer_.expires_after(kSweepTime);
  timer_.async_wait([this](const error_code& error) {
    if (!error) sweep();
  });
}

void IoThread::sweep() {
  const auto now = Clock::now();
  // The time for which this thread itself was held up (a busy machine, a long computation) is not
  // its clients' delay.
  const Clock::duration held_up = std::max(now - swept_ - 2 * kSweepTime, Clock::duration::zero());
  swept_ = now;
  // Requests that were sent before the peer could know are still answered.
  constexpr auto kLastRequests = std::chrono::milliseconds(200);
  if (server.draining.load() && !drain_began) drain_began = now;
  const bool idle_too = drain_began && now - *drain_began > kLastRequests;
  for (auto each = connections.begin(); each != connections.end();) {
    Connection& connection = **each++;  // it may close, and then leaves the list later
    connection.check_time(now, held_up, idle_too);
  }
  log.flush();
  state.refresh();
  if (!state.due.empty()) compute_soon();  // left behind when memory was short
  set_timer();
}

void IoThread::compute_soon() {
  if (compute_posted) return;
  asio::post(context, [this] {
    compute_posted = false;
    state.compute();
  });
  compute_posted = true;
}

// It enters the list last: the destructor does not run for a constructor that throws.
Connection::Connection(IoThread& io, Socket socket) : io_(io), socket_(std::move(socket)) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (io_.server.log.wanted()) {
    const auto end = socket_.remote_endpoint(ignored);
    if (!ignored) peer = end.address().to_string();
  }
  place_ = io_.connections.insert(io_.connections.end(), this);
  io_.server.metrics.connections.fetch_add(1);
}

Connection::~Connection() {
  io_.connections.erase(place_);
  io_.server.metrics.connections.fetch_sub(1);
}

void Connection::start() { next_request(); }

void Connection::enter(Phase phase) {
  const ServeOptions& options = io_.server.options;
  phase_ = phase;
  const auto now = Clock::now();
  switch (phase) {
    case Phase::idle:
      deadline_ = now + options.idle_time;
      break;
    case Phase::reading:
    case Phase::writing:
      deadline_ = now + options.request_time;
      break;
    case Phase::working:
      deadline_ = Clock::time_point::max();
      break;
    case Phase::ending:
      deadline_ = now + kEndTime;
      break;
  }
}

void Connection::check_time(Clock::time_point now, Clock::duration held_up, bool idle_too) {
  if (deadline_ != Clock::time_point::max()) deadline_ += held_up;
  if (now < deadline_ && !(idle_too && phase_ == Phase::idle)) return;
  if (phase_ == Phase::reading || phase_ == Phase::writing) {
    io_.server.metrics.timed_out.fetch_add(1);
  }
  close();
}

// Pending operations on the socket end with an error, and with them the connection.
void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
  deadline_ = Clock::time_point::max();
}

void Connection::next_request() {
  forget_large(body);
  forget_large(reply);
  forget_large(samples);
  forget_large(outputs);
  if (infer.inputs.size() > 64) infer.inputs.clear();
  for (InputTensor& tensor : infer.inputs) forget_large(tensor.values);
  model.reset();
  continued_ = false;
  parser_.emplace();
  parser_->get().body() = std::move(body);
  parser_->eager(true);
  parser_->header_limit(kMostHeader);
  parser_->body_limit(io_.server.options.most_body);
  if (buffer_.size() > 0) {  // it arrived together with the one before
    enter(Phase::reading);
    parse();
  } else {
    if (buffer_.capacity() > kKeptBytes) buffer_.shrink_to_fit();
    enter(Phase::idle);
    read();
  }
}

void Connection::read() {
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void Connection::on_read(const error_code& error, size_t bytes) {
  if (error) return close();
  io_.server.metrics.bytes_in.fetch_add(bytes, std::memory_order_relaxed);
  if (phase_ == Phase::ending) {  // nobody reads it any more
    buffer_.clear();
    return read();
  }
  if (phase_ == Phase::idle) enter(Phase::reading);
  buffer_.commit(bytes);
  parse();
}

void Connection::parse() {
  while (buffer_.size() > 0 && !parser_->is_done()) {
    error_code error;
    const size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (error == http::error::need_more) break;
    if (error) return refuse_message(error);
  }
  if (parser_->is_done()) return dispatch();
  if (parser_->is_header_done() && !continued_ && parser_->get().version() == 11) {
    continued_ = true;
    const auto expect = parser_->get().find(http::field::expect);
    if (expect != parser_->get().end() && beast::iequals(expect->value(), "100-continue")) {
      return say_continue();
    }
  }
  read();
}

void Connection::say_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                    [self = shared_from_this()](const error_code& error, size_t) {
                      error ? self->close() : self->read();
                    });
}

// The message is not HTTP, or too large: nothing after it can be parsed.
void Connection::refuse_message(const error_code& error) {
  if (error == http::error::body_limit) {
    return refuse_message(
        413, fmt::format("the body is larger than {} bytes", io_.server.options.most_body));
  }
  if (error == http::error::header_limit) {
    return refuse_message(431, fmt::format("the header is larger than {} bytes", kMostHeader));
  }
  refuse_message(400, "this is no request of HTTP/1.1: " + error.message());
}

void Connection::refuse_message(int code, std::string_view why) {
  received = Clock::now();
  method = target = accept_encoding = {};
  keep_alive_ = only_head_ = false;
  Router::answer_error(*this, code, why);
  send();
}

void Connection::dispatch() {
  auto& message = parser_->get();
  if (const Refusal refusal = refuse_header(*parser_); refusal.status != 0) {
    return refuse_message(refusal.status, refusal.why);
  }
  const auto field = [&](auto name) {
    const auto found = message.find(name);
    return found == message.end() ? std::string_view() : view(found->value());
  };
  method = view(message.method_string());
  target = path_of(view(message.target()));
  authorization = field(http::field::authorization);
  content_encoding = field(http::field::content_encoding);
  accept_encoding = field(http::field::accept_encoding);
  origin = field(http::field::origin);
  host = field(http::field::host);
  header_length = field("Inference-Header-Content-Length");
  body = std::move(message.body());
  old_version_ = message.version() < 11;
  only_head_ = message.method() == http::verb::head;
  keep_alive_ = message.keep_alive();
  received = Clock::now();
  enter(Phase::working);
  ++requests_;
  abandoned.store(false, std::memory_order_relaxed);
  self_ = shared_from_this();
  const std::shared_ptr<Connection> self = self_;
  io_.state.queued = false;
  bool ready = true;
  try {
    ready = io_.server.router.handle(*this, io_.state);
  } catch (...) {
    self_.reset();
    throw;
  }
  if (!io_.state.due.empty()) io_.compute_soon();
  if (io_.state.queued) watch_peer();
  if (!ready) return;  // another thread may own it now
  self_.reset();
  send();
}

// While a request waits in a queue: if its client disconnects, it need not be computed. The end of
// the client's data counts as disconnecting, as in most servers.
void Connection::watch_peer() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this(),
                                         request = requests_](const error_code& error) {
    if (error || self->requests_ != request || self->phase_ != Phase::working) return;
    char byte;
    const ssize_t got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const bool waits = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (waits) return self->watch_peer();
    if (got <= 0) self->abandoned = true;  // else the next request has arrived early
  });
}

void Connection::computed() noexcept { answer_on_own_thread(true); }
void Connection::answered() noexcept { answer_on_own_thread(false); }

// Only the connection's own thread may use it, and end it: it keeps itself until that thread has
// it. Without the memory to pass it on, this thread waits for some.
void Connection::answer_on_own_thread(bool computed) noexcept {
  const auto answer = [this, computed]() noexcept {
    const std::shared_ptr<Connection> self = std::move(self_);
    try {
      if (computed) io_.server.router.complete(*this);
      send();
    } catch (const std::exception&) {
      answer_without_memory();
    }
  };
  for (;;) {
    try {
      return asio::dispatch(io_.context, answer);
    } catch (const std::exception&) {
      std::this_thread::sleep_for(kSweepTime);
    }
  }
}

// Closes the connection if even this needs too much memory.
void Connection::answer_without_memory() noexcept {
  try {
    Router::answer_error(*this, 503, "out of memory");
    send();
  } catch (const std::exception&) {
    close();
  }
}

// Compresses the response if the client accepts gzip and it saves something.
void Connection::compress_reply() {
  constexpr size_t kWorthwhile = 1024, kMost = std::numeric_limits<int32_t>::max();  // for zlib
  if (status != 200 || reply.size() < kWorthwhile || reply.size() > kMost) return;
  if (!accepts_gzip(accept_encoding)) return;
  reply = deflate_body(reply);
  headers += "Content-Encoding: gzip\r\n";
}

void Connection::send() {
  if (!accept_encoding.empty()) compress_reply();
  if (io_.server.draining.load(std::memory_order_relaxed)) keep_alive_ = false;
  const auto reason = http::obsolete_reason(http::int_to_status(unsigned(status)));
  head_.clear();
  fmt::format_to(std::back_inserter(head_),
                 FMT_COMPILE("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}"),
                 status, view(reason), content_type, reply.size(), headers);
  if (!keep_alive_) {
    head_ += "Connection: close\r\n";
  } else if (old_version_) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
  io_.server.metrics.count_status(status);
  io_.log.add(*this);
  enter(Phase::writing);
  const std::array<asio::const_buffer, 2> buffers = {
      asio::buffer(head_), asio::buffer(reply.data(), only_head_ ? 0 : reply.size())};
  asio::async_write(socket_, buffers,
                    [self = shared_from_this()](const error_code& error, size_t bytes) {
                      self->on_written(error, bytes);
                    });
}

void Connection::on_written(const error_code& error, size_t bytes) {
  if (error) return close();
  io_.server.metrics.bytes_out.fetch_add(bytes, std::memory_order_relaxed);
  keep_alive_ ? next_request() : end();
}

// Closing a socket while the peer still sends would discard the response.
void Connection::end() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  enter(Phase::ending);
  buffer_.clear();
  model.reset();
  read();
}

}  // namespace ridgeline::serve
