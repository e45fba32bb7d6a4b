#include "ridgeline/serve/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <thread>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/serve/connection.h"

namespace ridgeline::serve {
namespace {

using asio::ip::tcp;
using Acceptor = asio::basic_socket_acceptor<tcp, asio::io_context::executor_type>;

constexpr auto kRetryTime = std::chrono::milliseconds(100);

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const ServeOptions& options, Router& router, const Repository& repository, Metrics& metrics,
       const LogFile& log)
      : server_{options, router, repository, metrics, log} {
    for (int i = 0; i < options.batch.io_threads; ++i) {
      threads_.push_back(std::make_unique<IoThread>(server_, size_t(i)));
    }
    acceptor_.emplace(threads_.front()->context);
    retry_.emplace(threads_.front()->context);
    listen();
    for (const auto& each : threads_) {
      running_.emplace_back([this, io = each.get()] { run(*io); });
    }
  }

  ~Impl() { stop(); }

  int port() const { return port_; }

  void drain() {
    server_.draining.store(true);
    asio::post(threads_.front()->context, [this] {
      error_code ignored;
      acceptor_->close(ignored);
      retry_->cancel(ignored);
    });
  }

  bool drained() const { return server_.metrics.connections.load() == 0; }

  void stop() {
    for (const auto& each : threads_) each->context.stop();
    for (std::thread& thread : running_) thread.join();
    running_.clear();
  }

 private:
  // A handler that throws, as when memory is short, ends its own connection at most. It may have
  // been the one that accepts or sweeps, or it may not have been called at all: both begin again.
  void run(IoThread& io) {
    for (;;) {
      try {
        io.start_sweeping();
        if (&io == threads_.front().get()) start_accepting();
        io.context.run();
        return;
      } catch (const std::exception& error) {
        write_stderr("ridgeline: warning: a connection was cut off: ");
        write_stderr(dynamic_cast<const std::bad_alloc*>(&error) ? "out of memory" : error.what());
        write_stderr("\n");
        std::this_thread::sleep_for(kRetryTime);
      }
    }
  }

  void listen() {
    const ServeOptions& options = server_.options;
    error_code error;
    const auto address = asio::ip::make_address(options.host, error);
    if (error) {
      throw_error(ErrorKind::usage, "--host {}: give an address such as 127.0.0.1, ::1 or 0.0.0.0",
                  options.host);
    }
    const tcp::endpoint endpoint(address, uint16_t(options.port));
    const auto check = [&](const char* doing) {
      if (!error) return;
      throw_error(ErrorKind::io, "cannot {} {} port {}: {}", doing, options.host, options.port,
                  error.message());
    };
    acceptor_->open(endpoint.protocol(), error);
    check("open a socket for");
    acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
    check("prepare");
    acceptor_->bind(endpoint, error);
    check("listen on");
    acceptor_->listen(tcp::acceptor::max_listen_connections, error);
    check("listen on");
    port_ = acceptor_->local_endpoint(error).port();
    check("listen on");
  }

  void start_accepting() {
    if (!acceptor_->is_open()) return;
    error_code ignored;
    acceptor_->cancel(ignored);
    retry_->cancel(ignored);
    accept();
  }

  // Distributes connections to the threads in turn.
  void accept() {
    IoThread& io = *threads_[next_];
    next_ = (next_ + 1) % threads_.size();
    const uint64_t number = ++accepts_;
    acceptor_->async_accept(
        io.context, [this, &io, number](const error_code& error, Socket socket) {
          if (!acceptor_->is_open()) return;
          const bool newest = number == accepts_;  // another one has begun otherwise
          if (error) return newest ? accept_later() : void();
          Metrics& metrics = server_.metrics;
          metrics.connections_accepted.fetch_add(1);
          if (metrics.connections.load() >= server_.options.most_connections) {
            metrics.connections_refused.fetch_add(1);
            error_code ignored;
            socket.close(ignored);
          } else {
            asio::post(io.context, [&io, socket = std::move(socket)]() mutable {
              std::make_shared<Connection>(io, std::move(socket))->start();
            });
          }
          if (newest) accept();
        });
  }

  // Usually there are too many open files, some of which will be closed.
  void accept_later() {
    retry_->expires_after(kRetryTime);
    retry_->async_wait([this](const error_code& error) {
      if (!error && acceptor_->is_open()) accept();
    });
  }

  ServerContext server_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::optional<Acceptor> acceptor_;
  std::optional<asio::steady_timer> retry_;
  std::vector<std::thread> running_;
  int port_ = 0;
  size_t next_ = 0;
  uint64_t accepts_ = 0;  // counted by the first thread
};

HttpServer::HttpServer(const ServeOptions& options, Router& router, const Repository& repository,
                       Metrics& metrics, const LogFile& log)
    : impl_(std::make_unique<Impl>(options, router, repository, metrics, log)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
void HttpServer::drain() { impl_->drain(); }
bool HttpServer::drained() const { return impl_->drained(); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace ridgeline::serve
