#include "ridgeline/prof/network.h"

#include <gtest/gtest.h>

namespace ridgeline::prof {
namespace {

TEST(Network, IsReadWithItsUnits) {
  const Network network = parse_network("25GB/s,2us");
  EXPECT_DOUBLE_EQ(network.bandwidth, 25e9);
  EXPECT_DOUBLE_EQ(network.latency, 2e-6);
  EXPECT_DOUBLE_EQ(parse_network("100Gb/s,500ns").bandwidth, 12.5e9);
  EXPECT_DOUBLE_EQ(parse_network("1.5MB/s,3ms").latency, 3e-3);
  for (const char* wrong : {"", "25GB/s", "25,2us", "25GB/s,2", "GB/s,2us", "-1GB/s,2us",
                            "25GB/s,2us,3", "1e400GB/s,2us", "0GB/s,2us"}) {
    EXPECT_THROW(parse_network(wrong), Error) << wrong;
  }
}

TEST(Network, SumsTakeWhatTheirMessagesTake) {
  const Network network{1e9, 1e-6};
  EXPECT_EQ(all_reduce_seconds(1e6, 1, network), 0);
  // Four ranks: two rounds there and two back, and three quarters of a megabyte twice.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e6, 4, network), 4e-6 + 1.5e-3);
  // Eight bytes: two rounds of the whole message.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(8, 4, network), 2 * (1e-6 + 8e-9));
  // Two ranks exchange all they have in one round, which is no more bytes.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e6, 2, network), 1e-6 + 1e-3);
}

}  // namespace
}  // namespace ridgeline::prof
