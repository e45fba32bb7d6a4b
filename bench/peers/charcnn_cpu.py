"""Inference of the character classifier on the CPU by PyTorch and ONNX Runtime, two threads.

usage: charcnn_cpu.py [BATCH]     prints one line of JSON: inputs a second, best and median
"""
import json
import os
import sys
import tempfile
import time

THREADS = 2
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch  # noqa: E402: reads the thread count when it is imported
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(THREADS)


class CharCNN(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [(70, 7), (256, 7)] + [(256, 3)] * 4
        self.conv = nn.ModuleList([nn.Conv1d(channels, 256, taps) for channels, taps in sizes])
        self.first, self.last = nn.LayerNorm((256, 1008)), nn.LayerNorm((256, 102))
        self.linear = nn.ModuleList(
            [nn.Linear(8704, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 4)])

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.first(self.conv[0](x))), 3)
        x = F.max_pool1d(F.relu(self.conv[1](x)), 3)
        for conv in self.conv[2:5]:
            x = F.relu(conv(x))
        x = F.max_pool1d(F.relu(self.last(self.conv[5](x))), 3).flatten(1)
        return self.linear[2](F.relu(self.linear[1](F.relu(self.linear[0](x)))))


def rate(batch, run, seconds=1.5):
    for _ in range(2):
        run()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    times.sort()
    return [round(batch / times[0], 1), round(batch / times[len(times) // 2], 1)]


def onnx_session(model, x):
    import onnxruntime
    path = os.path.join(tempfile.mkdtemp(), "charcnn.onnx")
    torch.onnx.export(model, (x,), path, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main():
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    model = CharCNN().eval()
    codes = torch.randint(0, 70, (batch, 1014))
    x = F.one_hot(codes, 70).transpose(1, 2).float().contiguous()
    found = {"batch": batch, "threads": THREADS}
    with torch.inference_mode():
        found["torch fp32"] = rate(batch, lambda: model(x))
    try:
        session = onnx_session(model, x)
        name, values = session.get_inputs()[0].name, x.numpy()
        found["onnxruntime"] = rate(batch, lambda: session.run(None, {name: values}))
    except ImportError as error:
        found["onnxruntime"] = str(error)
    with torch.inference_mode():
        half, narrow = CharCNN().eval().to(torch.bfloat16), x.to(torch.bfloat16)
        found["torch bf16"] = rate(batch, lambda: half(narrow))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found["torch autocast bf16"] = rate(batch, lambda: model(x))
    print(json.dumps(found))


main()
