#include "tests/support/oracle.h"

#include "ridgeline/cpu/reference/kernels.h"

namespace ridgeline::test {
namespace {

class ArraysBinding final : public Binding {
 public:
  ArraysBinding(Runtime& runtime, const Arrays& arrays, size_t workspace)
      : runtime_(runtime), arrays_(arrays), workspace_(workspace) {}

  Runtime& runtime() const override { return runtime_; }
  Tensor read(const Value& value) const override {
    return value ? arrays_[value] : Tensor{nullptr, value.dtype, value.shape, {}};
  }
  Tensor write(const Value& value) const override { return read(value); }
  std::byte* workspace() const override { return workspace_.data(); }

 private:
  Runtime& runtime_;
  const Arrays& arrays_;
  Buffer workspace_;
};

}  // namespace

Reference::Reference(int threads) : runtime_(threads), table_(cpu::reference_kernels()) {}

void Reference::run(const Program& program, size_t op, Arrays& arrays) {
  for (const Kernel& kernel : table_) {
    const Cover cover = kernel.covers({program, op, runtime_});
    if (cover.ops == 0) continue;
    const ArraysBinding binding(runtime_, arrays, cover.workspace);
    kernel.prepare({program, op, op + 1}, binding)->run();
    return;
  }
  throw_error(ErrorKind::usage, "no reference kernel covers {}", describe(program.ops[op]));
}

Arrays run_reference(const Program& program, const Arrays& inputs) {
  Arrays arrays = inputs.widened();
  Reference().run(program, 0, program.ops.size(), arrays);
  return arrays;
}

}  // namespace ridgeline::test
