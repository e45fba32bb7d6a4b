#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "ridgeline/dist/transport.h"

namespace ridgeline::dist {

// Asynchronous messages between pairs of ranks: the caller queues them and polls. One thread at a
// time, and not during a collective.
class Messages {
 public:
  using Body = std::vector<uint8_t>;
  struct Message {
    int from = 0;
    Body body;
    double seconds = 0;  // since it was announced
  };

  explicit Messages(Transport& transport) : transport_(transport) {}
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // The body is kept until it is sent.
  void send(int to, Body body);
  // Makes progress; returns the next complete message, if any. Messages of one rank keep their
  // order.
  std::optional<Message> poll();

  bool moved() const { return moved_; }  // whether the last poll() made progress
  bool busy() const { return !sending_.empty() || !receiving_.empty(); }
  size_t unsent() const { return sending_.size(); }
  size_t unsent_to(int rank) const;
  // A rank is lost: drops the messages to and from it.
  void forget(int rank);

  double sent_bytes() const { return sent_; }
  double received_bytes() const { return received_; }

 private:
  struct Open {
    int rank = 0;
    Transport::Request request = 0;
    Body body;
    std::chrono::steady_clock::time_point begin{};
  };

  Transport& transport_;
  std::deque<Open> sending_, receiving_;
  bool moved_ = false;
  double sent_ = 0, received_ = 0;
};

}  // namespace ridgeline::dist
