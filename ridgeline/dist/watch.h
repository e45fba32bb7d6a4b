#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ridgeline/dist/rank_communicator.h"

namespace ridgeline::dist {

// A watchdog that ends a run of several ranks as a whole. Message-passing libraries leave the
// survivors of a lost rank waiting forever, so every rank has a thread that keeps its own
// connection to the root's and sends a beat each second. A broken connection means that a rank was
// killed; silence, that it was stopped; a beat without progress of its main thread, that it hangs.
// Whoever notices tells the root, which names the rank and makes everyone exit. A rank whose
// launcher has died ends by itself.
//
// It listens on loopback if all ranks are on one host, else on every interface, and accepts only
// peers that know the run's token, which is sent over the transport.
class Watch {
 public:
  struct Options {
    double silence = 20;  // seconds without a beat, or without progress, until a rank is given up
    // The launcher. It is read before MPI starts, since the parent changes when the launcher dies.
    int parent = ::getppid();
  };

  // Collective. If no connection can be made (a firewall), the watchdog is disabled and says so.
  Watch(RankCommunicator& ranks, const Options& options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Collective: from now on closed connections are normal. If a rank is lost on the way and the run
  // continues without it, this ends like leave(). The library's own finalisation, which follows,
  // would wait for a rank that is lost then: this process ends with `code` after a time of silence.
  void finish(int code);

  // Ends a run that has continued without lost ranks: every other rank ends with 0, this one with
  // `code`, without the library's own finalisation, which would wait for the lost ones.
  [[noreturn]] void leave(int code);

  // Ends all ranks with `code`; `message` is the last line that any of them writes.
  [[noreturn]] void fail(int code, const std::string& message);

 private:
  struct Peer;
  enum class Kind : uint32_t;
  struct Head;

  void connect_all();
  void accept_all(int listener, const std::string& token);
  void connect_to_root(const std::string& address, const std::string& token);

  void run();
  void beat();
  void read_from(Peer& peer);
  void handle(Peer& peer, const Head& head, const std::string& text);
  void look_for_silence(int64_t now);
  bool hangs(int64_t now);
  void before_exit();
  void accuse(int rank, const std::string& what);
  [[noreturn]] void end_all(int code, const std::string& message);
  // Waits a moment for the others to close: a connection closed with unread bytes is reset, which
  // drops the last message in flight, and the root's end would look like its loss.
  void part();
  void wait_for_close(Peer& peer, int64_t until);
  void kill_stopped(Peer& peer);
  bool send(Peer& peer, Kind kind, int32_t value, const std::string& text = {});

  RankCommunicator& ranks_;
  const int64_t silence_ms_;
  const int parent_;
  std::vector<std::unique_ptr<Peer>> peers_;  // the root has all others, they have the root
  std::vector<std::string> names_;            // "rank 2 (node7, process 4711)"
  struct RankPlace {
    int process = 0;
    bool same_host = false;
  };
  std::vector<RankPlace> places_;  // of all ranks
  int wake_[2] = {-1, -1};
  std::atomic<bool> stop_{false}, ending_{false}, finishing_{false};
  std::atomic<int> last_code_{-1};       // of finish(), once it has begun
  std::atomic<int64_t> finished_ms_{0};  // when all ranks had called finish()
  int64_t longest_work_ms_ = 0;
  int64_t last_loop_ms_ = 0, last_beat_ms_ = 0;
  int64_t stopped_ms_ = 0, woken_ms_ = 0;  // how long it was stopped, until when
  std::mutex sending_;
  std::thread thread_;
};

}  // namespace ridgeline::dist
