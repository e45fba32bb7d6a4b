#include "ridgeline/dist/messages.h"

#include <algorithm>
#include <utility>

namespace ridgeline::dist {
namespace {

// The most receives in progress at a time, from all ranks together: bodies are allocated when a
// message is announced, so this bounds the memory that peers can make us use.
constexpr size_t kMostReceiving = 64;

}  // namespace

Messages::~Messages() {
  for (auto* list : {&sending_, &receiving_}) {
    for (Open& open : *list) transport_.keep(std::move(open.body));
  }
}

void Messages::send(int to, Body body) {
  sending_.push_back({to, 0, std::move(body), {}});
  Open& open = sending_.back();
  open.request = transport_.start_send(to, open.body.data(), open.body.size());
}

std::optional<Messages::Message> Messages::poll() {
  moved_ = false;
  for (auto open = sending_.begin(); open != sending_.end();) {
    if (!transport_.test(open->request)) {
      ++open;
      continue;
    }
    sent_ += double(open->body.size());
    open = sending_.erase(open);
    moved_ = true;
  }
  for (Transport::Envelope found; receiving_.size() < kMostReceiving && transport_.probe(found);) {
    receiving_.push_back({found.from, 0, Body(found.bytes), std::chrono::steady_clock::now()});
    Open& open = receiving_.back();
    open.request = transport_.start_receive(found, open.body.data());
    moved_ = true;
  }
  for (auto open = receiving_.begin(); open != receiving_.end(); ++open) {
    const auto same_rank = [&](const Open& earlier) { return earlier.rank == open->rank; };
    if (std::any_of(receiving_.begin(), open, same_rank)) continue;
    if (!transport_.test(open->request)) continue;
    const auto taken = std::chrono::steady_clock::now() - open->begin;
    Message message{open->rank, std::move(open->body),
                    std::chrono::duration<double>(taken).count()};
    receiving_.erase(open);
    received_ += double(message.body.size());
    moved_ = true;
    return message;
  }
  return std::nullopt;
}

size_t Messages::unsent_to(int rank) const {
  return size_t(std::ranges::count(sending_, rank, &Open::rank));
}

void Messages::forget(int rank) {
  for (auto* list : {&sending_, &receiving_}) {
    for (auto open = list->begin(); open != list->end();) {
      if (open->rank != rank) {
        ++open;
        continue;
      }
      transport_.keep(std::move(open->body));
      open = list->erase(open);
    }
  }
}

}  // namespace ridgeline::dist
