#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ridgeline {

// The free gaps of an unbounded memory. Taking the lowest gap that holds a block and returning a
// block take logarithmic time in the number of gaps: the gaps are a treap by offset in which each
// node knows the largest gap below it.
class FirstFit {
 public:
  FirstFit();

  size_t take(size_t bytes);               // the lowest offset where `bytes` are free
  void give(size_t offset, size_t bytes);  // frees a block again
  size_t steps() const { return steps_; }  // nodes visited so far

 private:
  using Index = uint32_t;  // into nodes_; 0: none
  struct Node {
    size_t offset = 0, bytes = 0;
    size_t largest = 0;  // gap of this node and those below
    uint64_t priority = 0;
    Index left = 0, right = 0;
  };

  Index make(size_t offset, size_t bytes);
  void refresh(Index node);
  Index merge(Index left, Index right);
  void split(Index node, size_t offset, Index& below, Index& from);  // offsets below it, the others

  std::vector<Node> nodes_;
  std::vector<Index> unused_;
  Index root_ = 0;
  uint64_t random_ = 0x9e3779b97f4a7c15ull;
  size_t steps_ = 0;
};

}  // namespace ridgeline
