#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <boost/asio/ip/address.hpp>
#include <cstdlib>
#include <exception>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/core/failure.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/serve/http_server.h"

namespace ridgeline::serve {
namespace {

void say(const std::string& text) { write_stderr("ridgeline: " + one_line(text) + "\n"); }

void check_address(const ServeOptions& options) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(options.host, error);
  if (error) {
    throw_error(ErrorKind::usage, "--host {}: give an address such as 127.0.0.1, ::1 or 0.0.0.0",
                quote(options.host));
  }
  if (address.is_loopback() || !options.token_file.empty() || options.insecure) return;
  throw_error(ErrorKind::usage,
              "--host {}: other machines could use this server: give --token-file FILE, or "
              "--insecure if everybody who can reach it may",
              options.host);
}

// Receives the signals of the process in a descriptor. Threads created later do not get them.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, each);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    signals_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    event_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!signals_ || !event_) throw_errno(ErrorKind::io, "serve", "wait for signals");
  }
  ~Signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Waits for a signal and returns it; 0 after a timeout or wake().
  int wait(std::chrono::milliseconds time) const {
    pollfd wanted[] = {{signals_.get(), POLLIN, 0}, {event_.get(), POLLIN, 0}};
    ::poll(wanted, 2, int(time.count()));
    uint64_t ignored;
    if (::read(event_.get(), &ignored, sizeof ignored) < 0) ignored = 0;
    signalfd_siginfo info{};
    const bool came = ::read(signals_.get(), &info, sizeof info) == ssize_t(sizeof info);
    return came ? int(info.ssi_signo) : 0;
  }

  // Called by any thread.
  void wake() const {
    const uint64_t one = 1;
    if (::write(event_.get(), &one, sizeof one) < 0) return;  // it is already awake
  }

 private:
  sigset_t before_;
  Descriptor signals_, event_;
};

// A server from start to end.
class Service {
 public:
  explicit Service(const ServeOptions& options)
      : options_(options),
        repository_(options_, metrics_),
        log_(options_.access_log),
        router_(options_, repository_, metrics_, background_) {
    if (!options_.token_file.empty()) router_.set_tokens(Tokens::read(options_.token_file));
    server_.emplace(options_, router_, repository_, metrics_, log_);
  }

  int run() {
    load();
    const bool polls = options_.poll_time.count() > 0;
    auto next_look = Clock::now() + options_.poll_time;
    while (!stopped_by_) {
      const auto most = std::chrono::milliseconds(1000);
      const int signal = signals_.wait(polls ? std::min(most, options_.poll_time) : most);
      if (polls && Clock::now() >= next_look) {
        background_.add([this] { repository_.poll(); });
        next_look = Clock::now() + options_.poll_time;
      }
      if (signal == SIGHUP) reload();
      if (signal == SIGINT || signal == SIGTERM) stopped_by_ = signal;
      if (signal == 0) background_.add([this] { repository_.drop_retired(); });
    }
    return drain();
  }

 private:
  // Models are loaded on another thread, so that the server reports that it is alive and handles
  // signals.
  void load() {
    std::exception_ptr failure;
    std::atomic<bool> loaded = false;
    background_.add([&] {
      try {
        repository_.load_all();
      } catch (...) {
        failure = std::current_exception();
      }
      loaded = true;
      signals_.wake();
    });
    while (!loaded) {
      const int signal = signals_.wait(std::chrono::seconds(1));
      if (signal == SIGINT || signal == SIGTERM) std::_Exit(128 + signal);  // nothing served yet
    }
    if (failure) std::rethrow_exception(failure);
    if (options_.poll_time.count() > 0) repository_.poll();
    router_.set_ready(true);
    std::vector<std::string> names;
    const auto table = repository_.table();
    for (const auto& [name, versions] : table->models()) names.push_back(name);
    const bool six = options_.host.find(':') != std::string::npos;
    say(fmt::format("serving {} on http://{}{}{}:{}",
                    names.empty() ? "no model yet" : list_words(names), six ? "[" : "",
                    options_.host, six ? "]" : "", server_->port()));
  }

  void reload() {
    background_.add([this] {
      log_.reopen();
      if (!options_.token_file.empty()) {
        try {
          router_.set_tokens(Tokens::read(options_.token_file));
        } catch (const std::exception& error) {
          say(fmt::format("warning: the tokens stay as they were: {}", failure_of(error).message));
        }
      }
      repository_.reload_all();
    });
  }

  int drain() {
    router_.set_ready(false);
    say("answering what is under way, then ending");
    server_->drain();
    const auto until = Clock::now() + options_.drain_time;
    while (!server_->drained() && Clock::now() < until) {
      const int signal = signals_.wait(std::chrono::milliseconds(20));
      if (signal == SIGINT || signal == SIGTERM) std::_Exit(128 + signal);
    }
    server_->stop();
    if (!server_->drained()) {
      say(fmt::format("{} connections were cut off after {} s", metrics_.connections.load(),
                      options_.drain_time.count()));
      std::_Exit(0);  // other threads still use them
    }
    server_.reset();
    return 0;
  }

  const ServeOptions& options_;
  Signals signals_;  // before any thread is created
  Metrics metrics_;
  Repository repository_;
  LogFile log_;
  Background background_;
  Router router_;
  std::optional<HttpServer> server_;
  int stopped_by_ = 0;
};

}  // namespace

int serve(const ServeOptions& options) {
  check_address(options);
  try {
    return Service(options).run();
  } catch (const boost::system::system_error& error) {  // of the sockets and timers
    const bool files = error.code().value() == EMFILE || error.code().value() == ENFILE;
    throw_error(ErrorKind::io, "the server cannot run: {}{}", error.what(),
                files ? "; raise ulimit -n" : "");
  }
}

}  // namespace ridgeline::serve
