#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <variant>

#include "ridgeline/ops/activation.h"
#include "ridgeline/ops/all_reduce.h"
#include "ridgeline/ops/augment.h"
#include "ridgeline/ops/conv.h"
#include "ridgeline/ops/custom.h"
#include "ridgeline/ops/dropout.h"
#include "ridgeline/ops/gather.h"
#include "ridgeline/ops/join.h"
#include "ridgeline/ops/linear.h"
#include "ridgeline/ops/loss.h"
#include "ridgeline/ops/norm.h"
#include "ridgeline/ops/one_hot_conv.h"
#include "ridgeline/ops/pool.h"
#include "ridgeline/ops/rearrange.h"
#include "ridgeline/ops/recurrent.h"
#include "ridgeline/ops/sequence.h"
#include "ridgeline/ops/unary.h"
#include "ridgeline/ops/update.h"

namespace ridgeline {

// The place of T among the types of a variant; their number if it is none of them.
template <typename T, typename Variant>
inline constexpr size_t kIndexIn = 0;
template <typename T, typename... Types>
inline constexpr size_t kIndexIn<T, std::variant<Types...>> = [] {
  size_t index = 0;
  (void)((std::is_same_v<T, Types> || (++index, false)) || ...);
  return index;
}();

// Every op a program can hold. A new op is a descriptor in its own header and one name here.
using AnyOp =
    std::variant<Gather, Linear, LinearGradX, LinearGradW, Activation, ActivationGrad, Dropout,
                 SoftmaxXent, SoftmaxXentGrad, Mse, MseGrad, Softmax, Argmax, SgdUpdate, AdamUpdate,
                 GlobalNorm, Tick, Conv2d, Conv2dGradX, Conv2dGradW, MaxPool, MaxPoolGrad, AvgPool,
                 AvgPoolGrad, LayerNorm, LayerNormGrad, BatchNorm, BatchNormGrad, BatchNormInfer,
                 GatherAugment, Rnn, RnnGrad, RnnGradX, RnnGradW, Embedding, EmbeddingGrad,
                 SelectTimestep, SelectTimestepGrad, Copy, AllReduceStart, AllReduceWait,
                 OneHotConv1d, OneHotConv1dGradW, ElementwiseLoss, ElementwiseLossGrad, GroupNorm,
                 GroupNormGrad, Custom, CustomGrad, Add, Multiply, Concat, Pad, Transpose, Upsample,
                 UpsampleGrad, Unary, UnaryGrad>;

// AnyOp, whose construction, copies and destruction are compiled once, in op.cpp: for so many types
// they took seconds of every source that holds a program.
class Op : public AnyOp {
 public:
  template <typename T>
  requires(kIndexIn<T, AnyOp> < std::variant_size_v<AnyOp>) Op(T op)
      : Op(kIndexIn<T, AnyOp>, &op) {}
  Op(const Op&);
  Op(Op&&) noexcept;
  Op& operator=(const Op&);
  Op& operator=(Op&&) noexcept;
  ~Op();

 private:
  Op(size_t index, void* op);  // moves from *op, which is of the type with this index
};

const char* name(const Op& op);
Values reads(const Op& op);   // present values only
Values writes(const Op& op);  // present values only
double flops(const Op& op);
double bytes(const Op& op);
std::string attributes(const Op& op);

// Returns a description for people: "linear x[32, 784] w[512, 784] -> [32, 512] fp32".
std::string describe(const Op& op);

}  // namespace ridgeline
