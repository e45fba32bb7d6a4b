#pragma once

#include "ridgeline/core/feistel.h"

namespace ridgeline {

// What an Uploader is as well if its device can make the order of an epoch by itself.
class OrderMaker {
 public:
  virtual ~OrderMaker() = default;
  // order[i] = network(i) for all i below network.n, in the device's memory and in order with the
  // runtime's other work.
  virtual void make_order(const Feistel& network, int32_t* order) = 0;
};

}  // namespace ridgeline
