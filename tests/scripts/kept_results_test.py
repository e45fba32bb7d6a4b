"""scripts/kept_results.py on figures that earlier versions wrote: today's keys, and today's names of kernels."""

import pathlib
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import kept_results  # noqa: E402

NAMES = {"cpu.conv2d_pool.toom": "cpu.conv2d_pool.winograd1d", "cuda.mlp_step.digits": "cuda.mlp_step.int8_split",
         "plan: cuda.mlp_train.mirrored": "plan: cuda.mlp_train.cluster_replicated",
         "cuda.gather_conv2d_pool_twice.tensor.2": "cuda.gather_conv2d_pool_x2.fused_conv2.2",
         "cuda.select_step_grad.plain": "cuda.select_timestep_grad.plain", "plan": "plan", "cluster": "cluster"}

# A plan's kernels, a profile with what it launched, the lines of a table, a rung of a ladder.
FORMER = [
    {"network": "784-10", "rows": ["cuda.mlp_step.bytes"], "rows_us": [["cuda.relu_pool.threes", 2.5]]},
    {"rows": [{"row": "cpu.rnn.items", "kernels": [{"name": "f<4>", "launches": 2}]}],
     "heaviest": "`cpu.rnn.items` (32 %)"},
    {"rows": [{"cell": "lstm", "rows": ["cpu.rnn.simd"]}], "train_rows": 7},
    {"rung": "all rows", "what": "every row, fp32", "rows": []},
    {"rows": 344},
]
CURRENT = [
    {"network": "784-10", "kernels": ["cuda.mlp_step.fp16_split_u8"], "kernels_us": [["cuda.relu_pool.pool3", 2.5]]},
    {"kernels": [{"kernel": "cpu.rnn.batch_parallel", "launches": [{"name": "f<4>", "count": 2}]}],
     "heaviest": "`cpu.rnn.batch_parallel` (32 %)"},
    {"rows": [{"cell": "lstm", "kernels": ["cpu.rnn.simd"]}], "train_rows": 7},
    {"rung": "all kernels", "what": "every kernel, fp32", "kernels": []},
    {"kernels": 344},
]

for former, now in NAMES.items():
    assert kept_results.kernel_name(former) == now, (former, kept_results.kernel_name(former))
for former, now in zip(FORMER, CURRENT):
    assert kept_results.current(former) == now, kept_results.current(former)
    assert kept_results.current(now) == now, f"changed what is current: {kept_results.current(now)}"
for path in sorted(kept_results.RESULTS.glob("*.json*")):
    kept_results.read(path)
