#include "ridgeline/engine/stream/delivery.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ridgeline::engine {
namespace {

using std::chrono::microseconds;

constexpr std::pair<Delivery, std::string_view> kNames[] = {
    {Delivery::credits, "credits"},         {Delivery::interleaved, "interleaved"},
    {Delivery::nonblocking, "nonblocking"}, {Delivery::blocking, "blocking"},
    {Delivery::scatter, "scatter"},
};

// Results that may wait for earlier ones, for each chunk in flight: a rank may be this many times
// slower than the others before they wait for it.
constexpr int64_t kWindow = 32;

// A rank that finishes its first chunks faster than this, in seconds each, asks for twice as many
// at a time, because the latency to the root then matters (two in flight fill 89 % of a link of 1
// Gb/s with chunks of 784 kB, four 92 %). Others keep few, so that the last chunks are spread
// evenly.
constexpr double kShortChunk = 0.02;
constexpr int64_t kTried = 8;

constexpr auto kLook = std::chrono::milliseconds(100);  // interval of checks for signals

std::vector<uint8_t> signal(ChunkKind kind, int64_t count = 0) {
  Chunk chunk;
  chunk.set_head({kind, 0, 0, count});
  return std::move(chunk.buffer());
}

}  // namespace

Delivery parse_delivery(const std::string& text) {
  std::string all;
  for (const auto& [delivery, called] : kNames) {
    if (called == text) return delivery;
    all += (all.empty() ? "" : ", ") + std::string(called);
  }
  throw_error(ErrorKind::usage, "--transport '{}': no such transport; there are {}", text, all);
}

std::string_view name(Delivery delivery) {
  return std::ranges::find(kNames, delivery, [](const auto& each) { return each.first; })->second;
}

void Pace::wait(Event& event, bool moved, bool busy) {
  constexpr int kSeldom = 40;  // idle polls until the longest interval
  idle_ = moved ? 0 : std::min(idle_ + 1, kSeldom);
  // Messages in flight need a poll every 50 us; otherwise a millisecond suffices.
  const int shift = std::min(idle_ / 8, busy ? 1 : 5);
  event.wait_for(microseconds(idle_ == 0 ? 0 : 25 << shift));
}

ChunkRoot::ChunkRoot(SourceReader& reader, Workers& workers, ResultWriter& writer,
                     dist::Messages* messages, Event& event, const RunClock& clock,
                     const Options& options)
    : reader_(reader),
      workers_(workers),
      writer_(writer),
      messages_(messages),
      event_(event),
      clock_(clock),
      options_(options) {
  for (int rank = 0; rank < options.ranks; ++rank) peers_.emplace_back().rank = rank;
  const bool whole = options_.delivery == Delivery::scatter;
  peers_[0].credits = whole ? std::numeric_limits<int>::max() : workers_.credits();
  peers_[0].begun = peers_[0].said_ready = true;
  if (options_.delivery == Delivery::blocking || options_.delivery == Delivery::nonblocking) {
    peers_[0].credits = 1;
  }
  if (!options_.root_computes) peers_[0].credits = 0;
  if (whole) workers_.hold(true);
}

void ChunkRoot::run() {
  while (!all_in() && !writer_.closed()) {
    if (options_.stopped && options_.stopped()) return;
    bool moved = dispatch();
    moved = take_results() || moved;
    if (messages_ != nullptr) moved = poll() || moved;
    writer_.check();
    bury_lost();
    if (moved) continue;
    if (messages_ == nullptr) {
      event_.wait_for(kLook);
    } else {
      pace_.wait(event_, moved, messages_->busy());
    }
  }
  writer_.finish(handed_);
  reader_.check();
}

bool ChunkRoot::all_in() const {
  return reader_.at_end() && again_.empty() &&
         std::ranges::all_of(peers_, [](const Peer& peer) { return peer.out.empty(); });
}

bool ChunkRoot::dispatch() {
  if (options_.delivery == Delivery::scatter && total_ < 0) {
    if (!reader_.complete()) return false;
    total_ = int64_t(reader_.waiting());
    if (std::ranges::any_of(peers_,
                            [](const Peer& peer) { return !peer.lost && !peer.said_ready; })) {
      total_ = -1;
      return false;
    }
  }
  bool any = false;
  for (;;) {
    const Chunk* chunk = again_.empty() ? reader_.peek() : &again_.back();
    if (chunk == nullptr) break;
    const int64_t number = chunk->head().number;
    int64_t credits = 0;
    for (const Peer& peer : peers_) credits += std::min(peer.credits + int(peer.out.size()), 1000);
    const bool whole = options_.delivery == Delivery::scatter;
    if (!whole && number >= writer_.next() + kWindow * std::max<int64_t>(1, credits)) break;
    Peer* peer = choose(number);
    if (peer == nullptr) break;
    if (again_.empty()) {
      ++handed_;
      hand(*peer, reader_.take());
    } else {
      Chunk again = std::move(again_.back());
      again_.pop_back();
      hand(*peer, std::move(again));
    }
    any = true;
  }
  if (options_.delivery == Delivery::scatter && !gone_ && reader_.at_end() &&
      (messages_ == nullptr || messages_->unsent() == 0)) {
    gone_ = true;
    for (const Peer& peer : peers_) {
      if (peer.rank > 0 && !peer.lost) messages_->send(peer.rank, signal(ChunkKind::go));
    }
    workers_.hold(false);
  }
  return any;
}

// Returns the rank that gets the chunk, or null if no rank may have it yet.
ChunkRoot::Peer* ChunkRoot::choose(int64_t number) {
  const int first = options_.root_computes ? 0 : 1;
  const auto living = int64_t(peers_.size()) - first;
  const bool rounds =
      options_.delivery == Delivery::blocking || options_.delivery == Delivery::nonblocking;
  if (options_.delivery == Delivery::blocking && messages_ != nullptr && messages_->unsent() > 0) {
    return nullptr;
  }
  if (rounds && number >= (writer_.next() / living + 1) * living) return nullptr;
  if (options_.delivery != Delivery::credits) {
    const int64_t place =
        options_.delivery == Delivery::scatter ? number * living / total_ : number % living;
    Peer& next = peers_[size_t(first + place)];
    if (!next.lost) return next.credits > 0 ? &next : nullptr;
  }
  Peer* best = nullptr;
  for (Peer& peer : peers_) {
    if (peer.lost || peer.credits == 0) continue;
    if (best == nullptr || peer.out.size() < best->out.size()) best = &peer;
  }
  return best;
}

void ChunkRoot::hand(Peer& peer, Chunk chunk) {
  const int64_t number = chunk.head().number;
  peer.out.push_back(number);
  --peer.credits;
  if (options_.survive || options_.keep) {
    const std::scoped_lock lock(mutex_);
    kept_[number] = chunk;
  }
  if (peer.rank == 0) {
    workers_.give(std::move(chunk));
  } else {
    messages_->send(peer.rank, std::move(chunk.buffer()));
  }
}

Chunk ChunkRoot::kept(int64_t number) {
  const std::scoped_lock lock(mutex_);
  return std::move(kept_.extract(number).mapped());
}

bool ChunkRoot::take_results() {
  bool any = false;
  while (auto result = workers_.take()) {
    accept(peers_[0], std::move(*result));
    any = true;
  }
  return any;
}

void ChunkRoot::accept(Peer& peer, ChunkResult result) {
  const auto at = std::ranges::find(peer.out, result.number);
  if (at == peer.out.end()) return;
  peer.out.erase(at);
  ++peer.credits;
  if (options_.survive && !options_.keep) {
    const std::scoped_lock lock(mutex_);
    kept_.erase(result.number);
  }
  writer_.put(std::move(result));
}

bool ChunkRoot::poll() {
  bool any = false;
  while (auto message = messages_->poll()) {
    receive(*message);
    any = true;
  }
  const bool busy = messages_->busy();
  const double now = clock_.now();
  if (busy_since_ >= 0) network_ += now - busy_since_;
  busy_since_ = busy ? now : -1;
  return any || messages_->moved();
}

void ChunkRoot::receive(const dist::Messages::Message& message) {
  Peer& peer = peers_[size_t(message.from)];
  if (peer.lost) return;
  const Chunk chunk(message.body);
  const ChunkHead head = chunk.head();
  switch (head.kind) {
    case ChunkKind::begun:
      peer.begun = true;
      return;
    case ChunkKind::ready:
      peer.said_ready = true;
      peer.credits = int(std::min<int64_t>(peer.credits + head.count,  // it may ask for more later
                                           std::numeric_limits<int>::max()));
      return;
    case ChunkKind::result:
      return accept(peer, ChunkResult::unpack(chunk));
    case ChunkKind::report:
      reports_.push_back(
          RankTimes::from_json(std::string(chunk.body().begin(), chunk.body().end())));
      peer.reported = true;
      return;
    default:
      throw_error(ErrorKind::comm, "rank {} sent a message of kind {}", message.from,
                  int64_t(head.kind));
  }
}

void ChunkRoot::lose(int rank) {
  {
    const std::scoped_lock lock(mutex_);
    newly_lost_.push_back(rank);
  }
  event_.set();
}

void ChunkRoot::bury_lost() {
  const std::scoped_lock lock(mutex_);
  if (newly_lost_.empty()) return;
  for (const int rank : newly_lost_) bury(peers_[size_t(rank)]);
  newly_lost_.clear();
  // A broadcast goes from rank to rank: a rank that is still inside the last one might wait for the
  // lost rank forever.
  for (Peer& peer : peers_) {
    if (!peer.begun) bury(peer);
  }
}

void ChunkRoot::bury(Peer& peer) {
  if (peer.lost) return;
  peer.lost = true;
  messages_->forget(peer.rank);
  for (const int64_t number : peer.out) again_.push_back(kept_.at(number));
  peer.out.clear();
  // The last element is handed out first: the earliest chunk, which the writer waits for.
  std::ranges::sort(again_, std::greater<>(), [](const Chunk& c) { return c.head().number; });
  RankTimes times;
  times.rank = peer.rank;
  times.lost = true;
  reports_.push_back(times);
}

std::vector<RankTimes> ChunkRoot::finish(const RankTimes& own) {
  for (const Peer& peer : peers_) {
    if (peer.rank > 0 && !peer.lost) messages_->send(peer.rank, signal(ChunkKind::stop));
  }
  const auto open = [](const Peer& peer) { return peer.rank > 0 && !peer.lost && !peer.reported; };
  while (std::ranges::any_of(peers_, open)) {
    const bool moved = poll();
    bury_lost();
    if (!moved) pace_.wait(event_, moved, true);
  }
  RankTimes root = own;
  root.network = network_;
  root.sent = messages_ != nullptr ? messages_->sent_bytes() : 0;
  root.received = messages_ != nullptr ? messages_->received_bytes() : 0;
  reports_.push_back(root);
  std::ranges::sort(reports_, {}, &RankTimes::rank);
  return reports_;
}

void run_chunk_rank(Workers& workers, dist::Messages& messages, Event& event, const RunClock& clock,
                    RankTimes own, Delivery delivery, bool wide, bool spans) {
  const bool whole = delivery == Delivery::scatter;
  const bool rounds = delivery == Delivery::blocking || delivery == Delivery::nonblocking;
  messages.send(0, signal(ChunkKind::begun));
  if (whole) workers.hold(true);
  workers.wait_ready();
  messages.send(0, signal(ChunkKind::ready, whole    ? std::numeric_limits<int32_t>::max()
                                            : rounds ? 1
                                                     : workers.credits()));
  const double ready = clock.now();
  Pace pace;
  double busy_since = -1;
  int64_t returned = 0;
  for (bool stopped = false; !stopped || messages.busy();) {
    bool moved = false;
    while (auto message = messages.poll()) {
      moved = true;
      Chunk chunk(std::move(message->body));
      const ChunkKind kind = chunk.head().kind;
      if (kind == ChunkKind::chunk) {
        if (spans) workers.arrived(chunk.head().number, message->seconds);
        workers.give(std::move(chunk));
      } else if (kind == ChunkKind::go) {
        workers.hold(false);
      } else if (kind == ChunkKind::stop) {
        stopped = true;
        RankTimes times = workers.times();
        times.rank = own.rank;
        times.host = own.host;
        times.start = own.start;
        times.results_out = own.results_out;
        times.network = own.network;
        times.sent = messages.sent_bytes();
        times.received = messages.received_bytes();
        const std::string text = times.to_json(spans);
        std::vector<uint8_t> body = signal(ChunkKind::report);
        body.insert(body.end(), text.begin(), text.end());
        messages.send(0, std::move(body));
      }
    }
    // After its report the root no longer receives from a rank.
    while (auto result = stopped ? std::nullopt : workers.take()) {
      moved = true;
      messages.send(0, result->pack(wide));
      own.results_out = clock.now();
      if (++returned == kTried && !whole && !rounds &&
          own.results_out - ready < double(kTried) * kShortChunk) {
        messages.send(0, signal(ChunkKind::ready, workers.credits()));
      }
    }
    moved = moved || messages.moved();
    const double now = clock.now();
    if (busy_since >= 0) own.network += now - busy_since;
    busy_since = messages.busy() ? now : -1;
    if (!moved) pace.wait(event, moved, messages.busy());
  }
}

}  // namespace ridgeline::engine
