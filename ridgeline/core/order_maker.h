#pragma once

#include "ridgeline/core/feistel.h"

namespace ridgeline {

// An Uploader also implements this if its device can compute the order of an epoch by itself.
class OrderMaker {
 public:
  virtual ~OrderMaker() = default;
  // order[i] = network(i) for all i below network.n, in device memory and in stream order with the
  // runtime's other work.
  virtual void make_order(const Feistel& network, int32_t* order) = 0;
};

}  // namespace ridgeline
