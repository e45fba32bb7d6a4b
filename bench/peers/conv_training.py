"""A training step of the conv nets in PyTorch, the whole of it in a CUDA graph, in both layouts and four
precisions: one JSON line each. Needs a GPU and torch."""
import json

import torch
from torch import nn
from torch.nn import functional

BATCH = 128
DEVICE = torch.device("cuda")


def microseconds(call, repeats=7, count=50):
    """Median of one call, events around batches of calls."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count * 1e3)
    return sorted(times)[len(times) // 2]


def graphed(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def fashion_lenet():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(3136, 256), nn.ReLU(), nn.Linear(256, 10))


def mnist_cnn():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(),
                         nn.Linear(128, 10))


def step_of(make, precision, layout):
    torch.manual_seed(0)
    net = make().to(DEVICE).to(memory_format=layout)
    x = torch.rand(BATCH, 1, 28, 28, device=DEVICE).contiguous(memory_format=layout)
    y = torch.randint(0, 10, (BATCH,), device=DEVICE)
    if precision == "bf16":
        net, x = net.to(torch.bfloat16), x.to(torch.bfloat16)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16 autocast", cache_enabled=False):
            loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()

    return step


def main():
    torch.backends.cudnn.benchmark = True
    for name, make in (("fashion-lenet", fashion_lenet), ("mnist-cnn", mnist_cnn)):
        for precision in ("fp32", "tf32", "bf16 autocast", "bf16"):
            torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
            torch.backends.cudnn.allow_tf32 = precision != "fp32"
            for last, layout in ((False, torch.contiguous_format), (True, torch.channels_last)):
                us = microseconds(graphed(step_of(make, precision, layout)))
                print(json.dumps({"net": name, "batch": BATCH, "prec": precision, "channels_last": last,
                                  "peer": "PyTorch, whole step in a CUDA graph", "us": round(us, 1)}), flush=True)


if __name__ == "__main__":
    main()
