#pragma once

#include <string>
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
#include "ridgeline/ops/update.h"

namespace ridgeline {

// Every op a program can hold. A new op is a descriptor in its own header and one name here.
using Op =
    std::variant<Gather, Linear, LinearGradX, LinearGradW, Activation, ActivationGrad, Dropout,
                 SoftmaxXent, SoftmaxXentGrad, Mse, MseGrad, Softmax, Argmax, SgdUpdate, AdamUpdate,
                 GlobalNorm, Tick, Conv2d, Conv2dGradX, Conv2dGradW, MaxPool, MaxPoolGrad, AvgPool,
                 AvgPoolGrad, LayerNorm, LayerNormGrad, BatchNorm, BatchNormGrad, BatchNormInfer,
                 GatherAugment, Rnn, RnnGrad, RnnGradX, RnnGradW, Embedding, EmbeddingGrad,
                 SelectTimestep, SelectTimestepGrad, Copy, AllReduceStart, AllReduceWait,
                 OneHotConv1d, OneHotConv1dGradW, ElementwiseLoss, ElementwiseLossGrad, GroupNorm,
                 GroupNormGrad, Custom, CustomGrad, Add, Multiply, Concat, Pad, Transpose, Upsample,
                 UpsampleGrad>;

const char* name(const Op& op);
Values reads(const Op& op);   // present values only
Values writes(const Op& op);  // present values only
double flops(const Op& op);
double bytes(const Op& op);
std::string attributes(const Op& op);

// Returns a description for people: "linear x[32, 784] w[512, 784] -> [32, 512] fp32".
std::string describe(const Op& op);

}  // namespace ridgeline
