#include "ridgeline/dist/messages.h"

#include <gtest/gtest.h>

#include "tests/dist/thread_ranks.h"

namespace ridgeline::dist {
namespace {

Messages::Body body(size_t bytes, uint8_t first) {
  Messages::Body made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = uint8_t(first + i);
  return made;
}

Messages::Message receive(Messages& messages) {
  for (;;) {
    if (auto message = messages.poll()) return std::move(*message);
    std::this_thread::yield();
  }
}

// Every rank sends to every other, and gets what was sent to it in the order of its sender.
TEST(Messages, ArriveWholeAndInOrder) {
  constexpr size_t kSizes[] = {0, 1, 7, 4096, 100'000};
  testing::on_ranks(3, [&](RankCommunicator& ranks) {
    Messages messages(ranks.transport());
    for (size_t k = 0; k < std::size(kSizes); ++k) {
      for (int to = 0; to < ranks.size(); ++to) {
        if (to != ranks.rank()) messages.send(to, body(kSizes[k], uint8_t(10 * ranks.rank() + k)));
      }
    }
    std::vector<size_t> got(3);
    for (size_t n = 0; n < 2 * std::size(kSizes); ++n) {
      const Messages::Message message = receive(messages);
      const size_t k = got[size_t(message.from)]++;
      EXPECT_EQ(message.body, body(kSizes[k], uint8_t(10 * message.from + k)));
      EXPECT_GE(message.seconds, 0);
    }
    messages.poll();
    EXPECT_FALSE(messages.busy());
    EXPECT_EQ(messages.received_bytes(), 2.0 * (1 + 7 + 4096 + 100'000));
    EXPECT_EQ(messages.sent_bytes(), messages.received_bytes());
    ranks.barrier();
  });
}

// A transport on which no started operation ever completes.
class Stuck final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 3; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 3; }
  std::string library() const override { return "stuck"; }
  bool any_thread() const override { return false; }
  void barrier() override {}
  void broadcast(void*, size_t, int) override {}
  void all_gather(const void*, void*, size_t) override {}
  void all_reduce(const void*, void*, int64_t, DType, Reduce) override {}
  void reduce_scatter(const void*, void*, std::span<const int64_t>, DType) override {}
  void all_gather_parts(void*, std::span<const int64_t>, size_t) override {}
  void exchange_parts(const void*, void*, std::span<const int64_t>, size_t) override {}
  Request start_send(int, const void*, size_t) override { return 0; }
  bool probe(Envelope& found) override {
    found = {2, 8};
    return announced_-- > 0;
  }
  Request start_receive(const Envelope&, void*) override { return 0; }
  bool test(Request) override { return false; }
  void finish() override {}
  void abort(int) noexcept override {}

 private:
  int announced_ = 1;
};

TEST(Messages, ForgetALostRank) {
  Stuck transport;
  Messages messages(transport);
  messages.send(1, body(10, 0));
  messages.send(2, body(10, 0));
  EXPECT_FALSE(messages.poll());
  EXPECT_TRUE(messages.moved());  // something was announced
  EXPECT_EQ(messages.unsent(), 2u);
  messages.forget(2);
  EXPECT_EQ(messages.unsent(), 1u);
  EXPECT_EQ(messages.unsent_to(2), 0u);
  messages.forget(1);
  EXPECT_FALSE(messages.busy());
}

}  // namespace
}  // namespace ridgeline::dist
