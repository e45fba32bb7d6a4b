#include "ridgeline/plan/first_fit.h"

#include <algorithm>
#include <limits>

namespace ridgeline {
namespace {

constexpr size_t kEndless = std::numeric_limits<size_t>::max() / 2;

}  // namespace

FirstFit::FirstFit() {
  nodes_.emplace_back();  // stands for no node
  root_ = make(0, kEndless);
}

FirstFit::Index FirstFit::make(size_t offset, size_t bytes) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  if (unused_.empty()) {
    unused_.push_back(Index(nodes_.size()));
    nodes_.emplace_back();
  }
  const Index node = unused_.back();
  unused_.pop_back();
  nodes_[node] = {offset, bytes, bytes, random_, 0, 0};
  return node;
}

void FirstFit::refresh(Index node) {
  ++steps_;
  Node& n = nodes_[node];
  n.largest = std::max({n.bytes, nodes_[n.left].largest, nodes_[n.right].largest});
}

FirstFit::Index FirstFit::merge(Index left, Index right) {
  if (left == 0 || right == 0) return left + right;
  const bool left_above = nodes_[left].priority > nodes_[right].priority;
  const Index top = left_above ? left : right;
  if (left_above) {
    nodes_[left].right = merge(nodes_[left].right, right);
  } else {
    nodes_[right].left = merge(left, nodes_[right].left);
  }
  refresh(top);
  return top;
}

void FirstFit::split(Index node, size_t offset, Index& below, Index& from) {
  if (node == 0) {
    below = from = 0;
    return;
  }
  Index part = 0;
  if (nodes_[node].offset < offset) {
    split(nodes_[node].right, offset, part, from);
    nodes_[node].right = part;
    below = node;
  } else {
    split(nodes_[node].left, offset, below, part);
    nodes_[node].left = part;
    from = node;
  }
  refresh(node);
}

size_t FirstFit::take(size_t bytes) {
  Index node = root_;
  for (;;) {
    ++steps_;
    const Node& n = nodes_[node];
    if (nodes_[n.left].largest >= bytes) {
      node = n.left;
    } else if (n.bytes >= bytes) {
      break;
    } else {
      node = n.right;
    }
  }
  const size_t offset = nodes_[node].offset, left_over = nodes_[node].bytes - bytes;
  Index below = 0, from = 0, above = 0;
  split(root_, offset, below, from);
  split(from, offset + 1, node, above);
  unused_.push_back(node);
  if (left_over > 0) below = merge(below, make(offset + bytes, left_over));
  root_ = merge(below, above);
  return offset;
}

void FirstFit::give(size_t offset, size_t bytes) {
  if (bytes == 0) return;
  Index below = 0, above = 0;
  split(root_, offset, below, above);
  // Adjacent gaps are merged with it.
  Index last = below;
  while (last != 0 && nodes_[last].right != 0) last = nodes_[last].right, ++steps_;
  if (last != 0 && nodes_[last].offset + nodes_[last].bytes == offset) {
    offset = nodes_[last].offset;
    bytes += nodes_[last].bytes;
    split(below, offset, below, last);
    unused_.push_back(last);
  }
  Index first = above;
  while (first != 0 && nodes_[first].left != 0) first = nodes_[first].left, ++steps_;
  if (first != 0 && offset + bytes == nodes_[first].offset) {
    bytes += nodes_[first].bytes;
    split(above, nodes_[first].offset + 1, first, above);
    unused_.push_back(first);
  }
  root_ = merge(merge(below, make(offset, bytes)), above);
}

}  // namespace ridgeline
