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

// Sees to it that a run of several ranks ends as one. Message-passing libraries leave the survivors
// of a lost rank waiting for ever; so every rank has a thread that keeps a connection of its own
// with the root's and sends a beat each second. A connection that breaks is a rank that was killed;
// silence, a rank that was stopped; a beat that says its main thread makes no progress, one that
// hangs. Whoever sees it tells the root, which names the rank and makes everyone exit. A rank whose
// launcher has died leaves by itself.
//
// It listens on loopback when all ranks are on one host, else on every interface, and talks only to
// those who know the run's token, which travels over the transport.
class Watch {
 public:
  struct Options {
    double silence = 20;  // seconds without a beat, or without progress, until a rank is given up
    // The launcher, seen before MPI's start: a process has another parent once it has died.
    int parent = ::getppid();
  };

  // Collective. Where no connection can be made (a firewall) the watch does without and says so.
  Watch(RankCommunicator& ranks, const Options& options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Collective: from now on closing connections mean nothing. Where a rank is lost on the way there
  // and done without, it ends as leave() does. The library's own end, which follows, would wait for
  // a rank that is lost then: this process ends with `code` after a time of silence.
  void finish(int code);

  // The end of a run that has lost ranks and gone on: every other rank ends with 0, this one with
  // `code`, without the library's own end, which would wait for the lost.
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
  // Waits a moment for the others to close: a connection closed with bytes unread is reset, which
  // drops the last message on its way, and the root's end would look like its loss.
  void part();
  void wait_for_close(Peer& peer, int64_t until);
  void finish_off(Peer& peer);
  bool send(Peer& peer, Kind kind, int32_t value, const std::string& text = {});

  RankCommunicator& ranks_;
  const int64_t silence_ms_;
  const int parent_;
  std::vector<std::unique_ptr<Peer>> peers_;  // the root has all others, they have the root
  std::vector<std::string> names_;            // "rank 2 (node7, process 4711)"
  struct Seat {
    int process = 0;
    bool same_host = false;
  };
  std::vector<Seat> seats_;  // of all ranks
  int wake_[2] = {-1, -1};
  std::atomic<bool> stop_{false}, ending_{false}, finishing_{false};
  std::atomic<int> last_code_{-1};       // of finish(), once it has begun
  std::atomic<int64_t> finished_ms_{0};  // when all ranks had come to finish()
  int64_t longest_work_ms_ = 0;
  int64_t last_loop_ms_ = 0, last_beat_ms_ = 0;
  int64_t stopped_ms_ = 0, woken_ms_ = 0;  // how long this process was stopped of late, until when
  std::mutex sending_;
  std::thread thread_;
};

}  // namespace ridgeline::dist
