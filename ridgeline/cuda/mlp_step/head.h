#pragma once

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/cuda/tile/head.h"
#include "ridgeline/plan/mlp_step.h"

// The top of a matched training step as arguments of the head's functions (tile/head.h).
namespace ridgeline::cuda {

// The buffers that the head reads and writes: dz, or its fp16 terms (tile/head.h).
template <typename T>
struct HeadPlaces {
  const T* h = nullptr;
  const int32_t* label = nullptr;
  T* dz = nullptr;
  OrderedBits<T>* dz_most = nullptr;
  void* dz_terms = nullptr;
  float* dz_power = nullptr;
  int terms = 0;
  T* partial = nullptr;
  double* loss = nullptr;
  int32_t* correct = nullptr;
};

template <typename T>
HeadArgs<T> bind_head(const MlpStepOps& step, const HeadLayout& layout, const HeadPlaces<T>& places,
                      const Binding& binding) {
  const MlpStepOps::Layer& top = step.layers.back();
  const MlpStepOps::Layer& below = step.layers[step.layers.size() - 2];
  const Linear& op = *top.linear;
  HeadArgs<T> head{};
  head.h = places.h;
  head.w = binding.read(op.w).template as<T>();
  head.b = binding.read(op.b).template as<T>();
  head.label = places.label;
  head.dz = places.dz;
  head.dz_terms = places.dz_terms;
  head.dz_power = places.dz_power;
  head.terms = places.terms;
  head.dz_most = places.dz_most;
  head.n = int(op.n());
  head.hidden = int(op.in());
  head.classes = int(op.out());
  head.activation = activation_of(below.activation->kind);
  head.scale = step.xent->scale;
  head.rows = layout.rows;
  head.partial = places.partial;
  head.loss = places.loss;
  head.correct = places.correct;
  return head;
}

template <typename T>
HeadSums<T> bind_head_sums(const MlpStepOps& step, const HeadLayout& layout,
                           const HeadArgs<T>& head, const Binding& binding) {
  const MlpStepOps::Layer& top = step.layers.back();
  const MlpStepOps::Layer& below = step.layers[step.layers.size() - 2];
  HeadSums<T> sums;
  sums.parts = layout.parts;
  sums.hidden = head.hidden;
  sums.classes = head.classes;
  sums.partial = head.partial;
  sums.part_loss = head.loss;
  sums.part_correct = head.correct;
  sums.w = binding.write(top.sgd_w->w).template as<T>();
  sums.w_momentum = binding.write(top.sgd_w->m).template as<T>();
  if (top.sgd_b != nullptr) {
    sums.b = binding.write(top.sgd_b->w).template as<T>();
    sums.b_momentum = binding.write(top.sgd_b->m).template as<T>();
  }
  if (below.sgd_b != nullptr) {
    sums.below = binding.write(below.sgd_b->w).template as<T>();
    sums.below_momentum = binding.write(below.sgd_b->m).template as<T>();
  }
  sums.sgd = sgd_settings(*top.sgd_w, binding);
  sums.scale = step.xent->scale;
  sums.loss = binding.write(step.xent->loss).template as<double>();
  sums.correct = binding.write(step.xent->correct).template as<int32_t>();
  return sums;
}

}  // namespace ridgeline::cuda
