// Sends the same request to an HTTP server again and again over connections that stay open, and
// prints how many answers per second came and how long they took.
// usage: http_load PORT PATH BODY [--header "Name: value"]... [--connections N] [--threads N]
//                  [--seconds S] [--rate R]
// BODY is a file. With --rate, R requests per second are due at fixed times, and a request's time
// counts from when it was due, so that a server that stalls is not sent fewer requests. Answers
// other than 200 count as failures. One line of JSON goes to stdout.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Options {
  int port = 0, connections = 16, threads = 1;
  double seconds = 5, rate = 0;
  std::string request;
};

struct Result {
  std::vector<float> us;
  uint64_t failures = 0, broken = 0;
};

// One connection: sends a request, reads its response, and repeats.
class Client {
 public:
  Client(const Options& options, Clock::time_point first, Clock::duration interval)
      : options_(options), due_(first), interval_(interval) {
    connect();
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int socket() const { return socket_; }
  bool waits() const { return !asked_; }
  Clock::time_point due() const { return due_; }

  void ask(Clock::time_point now) {
    begun_ = interval_.count() > 0 ? due_ : now;
    due_ += interval_;
    asked_ = true;
    const std::string& request = options_.request;
    size_t sent = 0;
    while (sent < request.size()) {
      const ssize_t n = ::send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) throw std::runtime_error("the server closed a connection");
      sent += size_t(n);
    }
  }

  // Reads the available bytes; true if the response is complete.
  bool read(Result& result) {
    char part[16384];
    const ssize_t n = ::recv(socket_, part, sizeof part, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) throw std::runtime_error("a connection broke");
    if (n < 0) return false;
    got_.append(part, size_t(n));
    if (wanted_ == 0) {
      const size_t end = got_.find("\r\n\r\n");
      if (end == std::string::npos) return false;
      size_t length = 0;
      std::string head = got_.substr(0, end);  // names of header fields are written in any case
      std::ranges::transform(head, head.begin(), [](unsigned char c) { return std::tolower(c); });
      const size_t field = head.find("content-length: ");
      if (field < end) std::from_chars(head.data() + field + 16, head.data() + end, length);
      wanted_ = end + 4 + length;
    }
    if (got_.size() < wanted_) return false;
    if (got_.compare(0, 12, "HTTP/1.1 200") != 0) ++result.failures;
    result.us.push_back(
        float(std::chrono::duration<double, std::micro>(Clock::now() - begun_).count()));
    got_.clear();
    wanted_ = 0;
    asked_ = false;
    return true;
  }

 private:
  void connect() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(options_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect: " + std::string(std::strerror(errno)));
    }
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  const Options& options_;
  int socket_ = -1;
  bool asked_ = false;
  Clock::time_point begun_, due_;
  Clock::duration interval_;
  std::string got_;
  size_t wanted_ = 0;
};

void run(const Options& options, int thread, Result& result) {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::unique_ptr<Client>> clients;
  const auto begin = Clock::now() + std::chrono::milliseconds(20);
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(Seconds(options.seconds));
  Clock::duration interval{0};
  if (options.rate > 0) {
    interval =
        std::chrono::duration_cast<Clock::duration>(Seconds(options.connections / options.rate));
  }
  for (int i = thread; i < options.connections; i += options.threads) {
    clients.push_back(
        std::make_unique<Client>(options, begin + i * interval / options.connections, interval));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = clients.back().get();
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, clients.back()->socket(), &event);
  }
  result.us.reserve(size_t(1) << 20);
  size_t open = 0;
  for (bool over = false; !over || open > 0;) {
    const auto now = Clock::now();
    over = now >= end;
    auto next = now + std::chrono::milliseconds(10);
    for (const auto& client : clients) {
      if (over || !client->waits()) continue;
      if (options.rate > 0 && now < client->due()) {
        next = std::min(next, client->due());
        continue;
      }
      client->ask(now);
      ++open;
    }
    // Sleeps until the next request is due: a thread of real-time priority that always runs is
    // stopped for a twentieth of each second by the kernel.
    const auto left = std::max(next - Clock::now(), Clock::duration::zero());
    const timespec timeout{0, std::chrono::nanoseconds(left).count()};
    epoll_event events[256];
    const int n = ::epoll_pwait2(epoll, events, 256, &timeout, nullptr);
    for (int i = 0; i < n; ++i) {
      auto& client = *static_cast<Client*>(events[i].data.ptr);
      if (!client.read(result)) continue;
      --open;
      if (options.rate > 0 || Clock::now() >= end) continue;
      client.ask(Clock::now());
      ++open;
    }
    if (over && Clock::now() > end + std::chrono::seconds(10)) break;
  }
  ::close(epoll);
}

Options read_options(int argc, char** argv) {
  if (argc < 4) {
    throw std::runtime_error(
        "usage: http_load PORT PATH BODY [--header H]... [--connections N] [--threads N] "
        "[--seconds S] [--rate R]");
  }
  Options options;
  options.port = std::stoi(argv[1]);
  std::ifstream file(argv[3], std::ios::binary);
  if (!file) throw std::runtime_error(std::string("cannot read ") + argv[3]);
  const std::string body{std::istreambuf_iterator<char>(file), {}};
  std::string head = std::string("POST ") + argv[2] + " HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--header")
      head += value + "\r\n";
    else if (name == "--connections")
      options.connections = std::stoi(value);
    else if (name == "--threads")
      options.threads = std::stoi(value);
    else if (name == "--seconds")
      options.seconds = std::stod(value);
    else if (name == "--rate")
      options.rate = std::stod(value);
    else
      throw std::runtime_error("unknown option " + name);
  }
  options.request = head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = read_options(argc, argv);
    std::vector<Result> results(size_t(options.threads));
    std::vector<std::thread> threads;
    std::optional<std::string> error;
    const auto begin = Clock::now();
    for (int t = 0; t < options.threads; ++t) {
      threads.emplace_back([&, t] {
        try {
          run(options, t, results[size_t(t)]);
        } catch (const std::exception& failure) {
          std::fprintf(stderr, "http_load: %s\n", failure.what());
          ++results[size_t(t)].broken;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double seconds = std::max(options.seconds, 1e-9);
    std::vector<float> us;
    uint64_t failures = 0, broken = 0;
    for (const Result& each : results) {
      us.insert(us.end(), each.us.begin(), each.us.end());
      failures += each.failures;
      broken += each.broken;
    }
    std::sort(us.begin(), us.end());
    const auto at = [&](double part) {
      return us.empty() ? 0.0 : double(us[size_t(part * double(us.size() - 1))]);
    };
    std::printf(
        "{\"requests_per_s\": %.0f, \"requests\": %zu, \"failures\": %llu, \"median_us\": %.1f, "
        "\"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"connections\": %d, \"seconds\": "
        "%.1f, \"rate\": %.0f}\n",
        double(us.size()) / seconds, us.size(), (unsigned long long)failures, at(0.5), at(0.99),
        at(0.999), at(1), options.connections, Seconds(Clock::now() - begin).count(), options.rate);
    return failures + broken == 0 && !us.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "http_load: %s\n", error.what());
    return 2;
  }
}
