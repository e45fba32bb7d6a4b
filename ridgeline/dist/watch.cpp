#include "ridgeline/dist/watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ridgeline/core/file.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/dist/sockets.h"

namespace ridgeline::dist {

enum class Watch::Kind : uint32_t { hello = 0x52494447, beat, hangs, failed, quit, bye };

struct Watch::Head {
  Kind kind;
  int32_t value;  // for hello: the rank; for failed and quit: the exit code
  uint32_t bytes;
};

struct Watch::Peer {
  int rank = 0;
  int fd = -1;
  int64_t heard_ms = 0;
  bool gone = false;  // said goodbye
  std::string pending;

  ~Peer() {
    if (fd >= 0) ::close(fd);
  }
};

namespace {

constexpr int64_t kBeatMs = 1000;
constexpr size_t kMostText = 8192;
constexpr int kGraceMs = 200;
constexpr int64_t kPartingMs = 1000;
// How much two ranks' views of the root's silence may differ: their own half beats of waiting, and
// a busy machine.
constexpr int kHearingMs = 2 * int(kBeatMs);

}  // namespace

Watch::Watch(RankCommunicator& ranks, const Options& options)
    : ranks_(ranks), silence_ms_(int64_t(1000 * options.silence)), parent_(options.parent) {
  for (const std::string& name :
       ranks.texts(fmt::format("{}, process {}", host_name(), ::getpid()))) {
    names_.push_back(fmt::format("rank {} ({})", names_.size(), name));
  }
  const auto hosts = ranks.texts(host_name());
  const auto processes = ranks.texts(std::to_string(::getpid()));
  for (size_t r = 0; r < hosts.size(); ++r) {
    places_.push_back({std::stoi(processes[r]), hosts[r] == host_name()});
  }
  connect_all();
  if (::pipe(wake_) != 0) throw_error(ErrorKind::comm, "no pipe for the watch on the ranks");
  const int64_t now = now_ms();
  for (auto& peer : peers_) peer->heard_ms = now;
  last_loop_ms_ = now;
  ranks_.set_end([this](int code, const std::string& message) { fail(code, message); });
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  ranks_.set_end({});
  stop_ = true;
  if (wake_[1] >= 0) [[maybe_unused]]
    const auto ignored = ::write(wake_[1], "x", 1);
  if (thread_.joinable()) thread_.join();
  for (const int fd : wake_) {
    if (fd >= 0) ::close(fd);
  }
}

void Watch::connect_all() {
  const bool one_host = ranks_.local_size() == ranks_.size();
  std::string address, token;
  int listener = -1;
  if (ranks_.is_root()) {
    token = random_token();
    listener = listen_for_ranks(one_host, ranks_.size(), address);
  }
  address = ranks_.text_from_root(address);
  token = ranks_.text_from_root(token);
  bool good = !address.empty();
  if (good && ranks_.is_root()) {
    accept_all(listener, token);
  } else if (good) {
    connect_to_root(address, token);
  }
  if (listener >= 0) ::close(listener);
  good = good && (ranks_.is_root() ? int(peers_.size()) == ranks_.size() - 1 : !peers_.empty());
  if (ranks_.reduce(int32_t(good), Reduce::min) == 1) return;
  peers_.clear();
  if (ranks_.is_root()) {
    write_stderr(
        "ridgeline: warning: the ranks cannot reach one another but by MPI (a firewall?): a lost "
        "one will not be noticed\n");
  }
}

// A peer without the token is rejected; one that does not arrive in time is missing.
void Watch::accept_all(int listener, const std::string& token) {
  const int64_t deadline = now_ms() + kConnectMs;
  while (int(peers_.size()) < ranks_.size() - 1 && now_ms() < deadline) {
    auto peer = std::make_unique<Peer>();
    peer->fd = accept_one(listener, int(deadline - now_ms()));
    if (peer->fd < 0) break;
    Head head{};
    std::string text(token.size(), '\0');
    if (!read_exactly(peer->fd, &head, sizeof(head)) || head.kind != Kind::hello ||
        head.bytes != token.size() || !read_exactly(peer->fd, text.data(), text.size()) ||
        text != token) {
      continue;
    }
    peer->rank = head.value;
    peers_.push_back(std::move(peer));
  }
}

void Watch::connect_to_root(const std::string& address, const std::string& token) {
  auto peer = std::make_unique<Peer>();
  peer->rank = 0;
  peer->fd = connect_to_any(address);
  if (peer->fd < 0 || !send(*peer, Kind::hello, ranks_.rank(), token)) return;
  peers_.push_back(std::move(peer));
}

bool Watch::send(Peer& peer, Kind kind, int32_t value, const std::string& text) {
  const std::string cut = text.substr(0, kMostText);
  const Head head{kind, value, uint32_t(cut.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += cut;
  const std::scoped_lock lock(sending_);
  return ::send(peer.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size());
}

void Watch::run() {
  while (!stop_) {
    std::vector<pollfd> fds{{wake_[0], POLLIN, 0}};
    for (const auto& peer : peers_) {
      fds.push_back({peer->gone ? -1 : peer->fd, POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), int(kBeatMs / 2));
    if (stop_) return;
    const int64_t now = now_ms();
    // A process that was stopped itself must not call the others silent.
    if (now - last_loop_ms_ > 4 * kBeatMs) {
      for (auto& peer : peers_) peer->heard_ms = now;
      stopped_ms_ = now - last_loop_ms_;
      woken_ms_ = now;
    }
    last_loop_ms_ = now;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (fds[i + 1].revents != 0) read_from(*peers_[i]);
    }
    beat();
    look_for_silence(now);
    if (finished_ms_ > 0 && now - finished_ms_ > silence_ms_) ::_exit(last_code_);
    if (::getppid() != parent_ && !finishing_) {
      // Every rank on this host notices; one line is enough.
      if (ranks_.local_rank() == 0) {
        write_stderr("ridgeline: the launcher has died; continue with --resume\n");
      }
      before_exit();
      ::_exit(exit_code(ErrorKind::comm));
    }
  }
}

void Watch::before_exit() {
  if (const auto call = ranks_.hooks().before_exit) call();
}

void Watch::beat() {
  const int64_t now = now_ms();
  if (now - last_beat_ms_ < kBeatMs) return;
  last_beat_ms_ = now;
  const Kind kind = hangs(now) ? Kind::hangs : Kind::beat;
  for (auto& peer : peers_) {
    if (!peer->gone) send(*peer, kind, 0);
  }
  if (kind == Kind::hangs && ranks_.is_root()) accuse(0, "hangs");
}

// Whether it has made no progress for far longer than any work so far took.
bool Watch::hangs(int64_t now) {
  const int64_t since = ranks_.pulse();
  if (since == 0 || finishing_) return false;
  if (now - since > std::max(silence_ms_, 10 * longest_work_ms_)) return true;
  if (now - since < silence_ms_ / 2) longest_work_ms_ = std::max(longest_work_ms_, now - since);
  return false;
}

void Watch::read_from(Peer& peer) {
  char buffer[4096];
  const ssize_t got = ::recv(peer.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    peer.gone = true;
    if (finishing_) return;
    // Nor is it lost: if this process was stopped that long, the others have given it up and ended.
    if (stopped_ms_ > silence_ms_ - 2 * kBeatMs && now_ms() - woken_ms_ < 2 * kBeatMs) {
      accuse(ranks_.rank(), fmt::format("was stopped for {} s", stopped_ms_ / 1000));
    }
    accuse(peer.rank, "was lost (killed, or its machine is gone)");
    return;
  }
  peer.heard_ms = now_ms();
  peer.pending.append(buffer, size_t(got));
  while (peer.pending.size() >= sizeof(Head)) {
    Head head{};
    std::memcpy(&head, peer.pending.data(), sizeof(head));
    if (head.bytes > kMostText || peer.pending.size() < sizeof(head) + head.bytes) break;
    const std::string text = peer.pending.substr(sizeof(head), head.bytes);
    peer.pending.erase(0, sizeof(head) + head.bytes);
    handle(peer, head, text);
  }
}

void Watch::handle(Peer& peer, const Head& head, const std::string& text) {
  switch (head.kind) {
    case Kind::hangs:
      return accuse(peer.rank, "hangs");
    case Kind::failed:
      // If all ranks fail at once (a missing file), the root may report it in its own words.
      ::usleep(kGraceMs * 1000);
      end_all(head.value, fmt::format("rank {}: {}", peer.rank, text));
    case Kind::quit:
      before_exit();
      ::_exit(head.value);
    case Kind::bye:
      peer.gone = true;
      return;
    default:
      return;
  }
}

void Watch::look_for_silence(int64_t now) {
  if (finishing_) return;
  for (auto& peer : peers_) {
    if (!peer->gone && now - peer->heard_ms > silence_ms_) {
      accuse(peer->rank, fmt::format("has not been heard of for {} s (stopped, or its machine is)",
                                     (now - peer->heard_ms) / 1000));
    }
  }
}

void Watch::accuse(int rank, const std::string& what) {
  const RankHooks hooks = ranks_.hooks();
  const std::string& name = names_[size_t(rank)];
  if (ranks_.is_root() && rank != 0 && hooks.lost) {
    ranks_.broken() = true;
    for (auto& peer : peers_) {
      if (peer->rank == rank && !std::exchange(peer->gone, true)) kill_stopped(*peer);
    }
    if (hooks.lost(rank, fmt::format("{} of {} {}", name, ranks_.size(), what))) {
      if (last_code_ >= 0) leave(last_code_);  // else the main thread will
      return;
    }
  }
  if (ranks_.is_root()) before_exit();
  const std::string text =
      fmt::format("{} of {} {}; {}", name, ranks_.size(), what,
                  hooks.advice ? hooks.advice() : "a run with --out continues with --resume");
  if (ranks_.is_root()) end_all(exit_code(ErrorKind::comm), text);
  // The root itself is lost: all others notice, and the first of them reports it. The launcher ends
  // everyone as soon as one has ended.
  if (ranks_.rank() == 1) {
    write_stderr("ridgeline: " + one_line(text) + "\n");
  } else {
    ::usleep(kHearingMs * 1000);
  }
  before_exit();
  ::_exit(exit_code(ErrorKind::comm));
}

// Kills a stopped rank if possible: it would keep its file locks, and the launcher would wait for
// it.
void Watch::kill_stopped(Peer& peer) {
  const RankPlace& place = places_[size_t(peer.rank)];
  if (!place.same_host) return;
  ::kill(place.process, SIGKILL);
  wait_for_close(peer, now_ms() + kPartingMs);
}

void Watch::end_all(int code, const std::string& message) {
  if (ending_.exchange(true)) {
    for (;;) ::pause();  // another thread is already ending the process
  }
  before_exit();
  write_stderr("ridgeline: " + one_line(message) + "\n");
  finishing_ = true;  // connections close from here on
  for (auto& peer : peers_) {
    if (peer->fd >= 0) send(*peer, Kind::quit, code);
  }
  if (peers_.empty()) ranks_.transport().abort(code);
  part();
  ::_exit(code);
}

void Watch::part() {
  const int64_t until = now_ms() + kPartingMs;
  for (auto& peer : peers_) {
    if (peer->fd < 0) continue;
    ::shutdown(peer->fd, SHUT_WR);
    wait_for_close(*peer, until);
  }
}

void Watch::wait_for_close(Peer& peer, int64_t until) {
  char buffer[4096];
  pollfd reading{peer.fd, POLLIN, 0};
  for (int64_t left = until - now_ms(); left > 0; left = until - now_ms()) {
    if (::poll(&reading, 1, int(left)) <= 0) continue;
    // The watchdog's own thread may have taken the bytes meanwhile.
    const ssize_t got = ::recv(peer.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
  }
}

void Watch::fail(int code, const std::string& message) {
  const std::string line = one_line(message);
  if (ranks_.is_root() || peers_.empty()) end_all(code, line);
  send(*peers_.front(), Kind::failed, code, line);
  // The root's answer ends this process; if it never comes, this rank must end by itself.
  for (int i = 0; i < 50; ++i) ::usleep(100'000);
  write_stderr("ridgeline: " + line + "\n");
  ::_exit(code);
}

void Watch::leave(int code) {
  finishing_ = true;
  if (ranks_.is_root()) {
    for (auto& peer : peers_) {
      if (peer->fd >= 0 && !peer->gone) send(*peer, Kind::quit, 0);
    }
    part();
  } else {
    for (int i = 0; i < 300; ++i) ::usleep(100'000);  // until the root answers
  }
  ::_exit(code);
}

void Watch::finish(int code) {
  last_code_ = code;
  if (ranks_.broken()) leave(code);
  ranks_.barrier();
  finished_ms_ = now_ms();
  finishing_ = true;
  for (auto& peer : peers_) send(*peer, Kind::bye, 0);
  ranks_.barrier();  // so that nobody closes while others would still report it
}

}  // namespace ridgeline::dist
