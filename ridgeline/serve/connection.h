#pragma once

// Includes Boost.Beast, which is slow to compile: only for http_server.cpp and connection.cpp.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/optional.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "ridgeline/serve/access_log.h"
#include "ridgeline/serve/router.h"

namespace ridgeline::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Socket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

// State that all connection threads share.
struct ServerContext {
  const ServeOptions& options;
  Router& router;
  const Repository& repository;
  Metrics& metrics;
  const LogFile& log;
  std::atomic<bool> draining{false};
};

class Connection;

// A thread with its own connections.
struct IoThread {
  IoThread(ServerContext& server, size_t number)
      : server(server), state(server.options, server.repository, number), log(server.log) {}

  // Looks at all connections ten times a second. Called again after a handler has thrown.
  void start_sweeping();
  // Computes the submitted jobs once all requests that have arrived are read.
  void compute_soon();

  ServerContext& server;
  RouterState state;
  AccessLog log;
  std::list<Connection*> connections;
  bool compute_posted = false;
  std::optional<Clock::time_point> drain_began;
  asio::io_context context{1};  // destroyed first, and with it the connections

 private:
  void sweep();
  void set_timer();
  asio::steady_timer timer_{context};
  Clock::time_point swept_;
};

// The body of a request: a string that grows as data arrives, whatever length was announced.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, typename Fields>
    reader(http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& length, error_code& error) {
      constexpr std::uint64_t kAtOnce = 1 << 16, kPadding = 64;  // simdjson's, beyond the end
      body_.clear();
      if (length) body_.reserve(size_t(std::min(*length, kAtOnce) + kPadding));
      error = {};
    }
    template <typename Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      size_t bytes = 0;
      for (const asio::const_buffer each : beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(each.data()), each.size());
        bytes += each.size();
      }
      error = {};
      return bytes;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// Why a request is refused although it could be parsed; status 0: it is not.
struct Refusal {
  int status = 0;
  std::string_view why;
};

inline Refusal refuse_header(const http::request_parser<GrowingBody>& parser) {
  const auto& message = parser.get();
  // Unless the body is in chunks alone, its end is not known, and its bytes would be taken for the
  // next request.
  const auto coding = message.find(http::field::transfer_encoding);
  if (message.count(http::field::transfer_encoding) > 1 ||
      (coding != message.end() && !beast::iequals(coding->value(), "chunked"))) {
    return {parser.chunked() ? 501 : 400, "the only Transfer-Encoding that is taken is chunked"};
  }
  if (message.version() == 11 && message.count(http::field::host) != 1) {
    return {400, "a request of HTTP/1.1 has one header Host"};
  }
  return {};
}

// Reads requests, one after another, and writes their responses.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(IoThread& io, Socket socket);
  ~Connection() override;

  void start();
  // Closes it if it takes too long, not counting the time for which its thread was `held_up`; with
  // `idle_too`, also if it is idle.
  void check_time(Clock::time_point now, Clock::duration held_up, bool idle_too);

  void computed() noexcept override;
  void answered() noexcept override;

 private:
  enum class Phase { idle, reading, working, writing, ending };

  void read();
  void on_read(const error_code& error, size_t bytes);
  void parse();
  void say_continue();
  void refuse_message(const error_code& error);
  void refuse_message(int code, std::string_view why);
  void dispatch();
  void watch_peer();
  void compress_reply();
  void send();
  void answer_on_own_thread(bool computed) noexcept;
  void answer_without_memory() noexcept;
  void on_written(const error_code& error, size_t bytes);
  void next_request();
  void end();
  void close();
  void enter(Phase phase);

  IoThread& io_;
  Socket socket_;
  std::list<Connection*>::iterator place_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<GrowingBody>> parser_;
  std::string head_;
  Phase phase_ = Phase::idle;
  Clock::time_point deadline_;
  bool keep_alive_ = true, continued_ = false, only_head_ = false, old_version_ = false;
  std::shared_ptr<Connection> self_;  // while another thread works on it
  uint64_t requests_ = 0;
};

}  // namespace ridgeline::serve
