"""Times training steps of a case of bench/generality_cases.py in PyTorch and JAX, at their best.

usage: nets.py CASES.json OUT.jsonl DEVICE SECONDS [torch] [compile] [jax]
CASES.json: a list of {"case": ..., "precision": "fp32" | "tf32" | "bf16"}. One line of JSON a figure.
On a GPU PyTorch's whole step is in a CUDA graph with a fused, capturable optimizer; JAX scans over steps with donated
buffers. Samples are resident as bytes (floats, of a table) and gathered in the step on both sides, as in ours."""
import json
import os
import sys
import time

N = 20000  # samples that are resident
TABLE_N = 1_000_000  # of a table


def median_us(run, steps, seconds):
    """Microseconds per step: the median of repeats of run(), which makes `steps` steps and waits for them."""
    run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) / steps * 1e6)
    return sorted(times)[len(times) // 2]


# PyTorch -----------------------------------------------------------------------------------------

def torch_module(case):
    import torch
    from torch import nn

    class Select(nn.Module):
        def forward(self, x):
            return x[:, -1]

    class Recurrent(nn.Module):
        def __init__(self, kind, features, layer):
            super().__init__()
            make = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind]
            self.layer = make(features, layer["hidden"], layer.get("layers", 1), batch_first=True,
                              dropout=layer.get("dropout", 0.0))

        def forward(self, x):
            return self.layer(x)[0]

    acts = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
    shape = [case["text"]] if case["text"] else list(case["shape"])
    modules = []
    for layer in case["layers"]:
        kind = layer["type"]
        if kind == "linear" and layer.get("per_step"):
            modules.append(nn.Linear(shape[-1], layer["out"]))
            shape = [*shape[:-1], layer["out"]]
        elif kind == "linear":
            size = 1
            for extent in shape:
                size *= extent
            if len(shape) > 1:
                modules.append(nn.Flatten())
            modules.append(nn.Linear(size, layer["out"]))
            shape = [layer["out"]]
        elif kind == "conv2d":
            kernel, stride, pad = layer["kernel"], layer.get("stride", 1), layer.get("padding", 0)
            modules.append(nn.Conv2d(shape[0], layer["out"], kernel, stride, pad, bias=layer.get("bias", True)))
            shape = [layer["out"], *[(extent + 2 * pad - kernel) // stride + 1 for extent in shape[1:]]]
        elif kind == "maxpool2d":
            modules.append(nn.MaxPool2d(layer["kernel"]))
            shape = [shape[0], *[extent // layer["kernel"] for extent in shape[1:]]]
        elif kind == "batchnorm":
            modules.append((nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d)(shape[0]))
        elif kind == "layernorm":
            modules.append(nn.LayerNorm(shape))
        elif kind == "dropout":
            modules.append(nn.Dropout(layer["p"]))
        elif kind == "embedding":
            modules.append(nn.Embedding(layer["vocabulary"], layer["out"]))
            shape = [*shape, layer["out"]]
        elif kind in ("rnn", "gru", "lstm"):
            modules.append(Recurrent(kind, shape[-1], layer))
            shape = [*shape[:-1], layer["hidden"]]
        elif kind == "select":
            modules.append(Select())
            shape = shape[1:]
        else:
            modules.append(acts[kind]())
    return nn.Sequential(*modules), torch


def torch_optimizer(torch, parameters, spec, cuda):
    options = {key: value for key, value in spec.items() if key != "type"}
    if spec["type"] == "sgd":
        return torch.optim.SGD(parameters, fused=cuda or None, **options)
    if cuda:
        options.update(fused=True, capturable=True)
    return (torch.optim.Adam if spec["type"] == "adam" else torch.optim.AdamW)(parameters, **options)


def torch_us(case, precision, device, seconds, compiled):
    net, torch = torch_module(case)
    import torch.nn.functional as F
    cuda = device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    net = net.to(device)
    image = len(case["shape"]) == 3 and not case["text"]
    if image and cuda and precision == "bf16":
        net = net.to(memory_format=torch.channels_last)
    batch, text = case["batch"], case["text"]
    if text:
        samples = torch.randint(0, 65, (N // 8, text + 1), device=device, dtype=torch.uint8)
    elif case["table"]:
        samples = torch.randn(TABLE_N, case["table"], device=device)
    else:
        samples = torch.randint(0, 256, (N, *case["shape"]), device=device, dtype=torch.uint8)
    labels = torch.randint(0, 10, (N,), device=device)
    values = torch.randn(TABLE_N, 1, device=device) if case["table"] else None
    chosen = torch.randint(0, len(samples), (batch,), device=device)
    optimizer = torch_optimizer(torch, net.parameters(), case["optimizer"], cuda)
    forward = torch.compile(net, mode="max-autotune-no-cudagraphs") if compiled else net

    def step():
        optimizer.zero_grad(set_to_none=True)
        taken = samples[chosen]
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            if text:
                out = forward(taken[:, :-1].long())
                loss = F.cross_entropy(out.reshape(-1, 65).float(), taken[:, 1:].reshape(-1).long())
            elif case["table"]:
                loss = F.mse_loss(forward(taken).float(), values[chosen])
            else:
                x = taken.to(torch.float32) * (1 / 255)
                if image and cuda and precision == "bf16":
                    x = x.contiguous(memory_format=torch.channels_last)
                loss = F.cross_entropy(forward(x).float(), labels[chosen])
        loss.backward()
        if case["clip"]:
            torch.nn.utils.clip_grad_norm_(net.parameters(), case["clip"], foreach=True)
        optimizer.step()

    if not cuda:
        def run():
            for _ in range(10):
                step()
        return median_us(run, 10, seconds)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()

    def replay():
        for _ in range(100):
            graph.replay()
        torch.cuda.synchronize()
    return median_us(replay, 100, seconds)


# JAX ---------------------------------------------------------------------------------------------

def jax_net(case, compute):
    """(parameters, forward(parameters, x, key)) with products in the dtype `compute`."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    random = np.random.default_rng(0)
    shape = [case["text"]] if case["text"] else list(case["shape"])
    parameters, parts = [], []

    def weight(*extents):
        return jnp.asarray(random.normal(size=extents) * extents[0] ** -0.5, jnp.float32)

    def add(values, apply):
        parameters.append(values)
        parts.append(apply)

    def product(x, w):
        return x.astype(compute) @ w.astype(compute)

    def recurrent(kind, hidden):
        def cell(state, x, u, bias):
            h = state[0]
            if kind == "gru":
                hidden_part = product(h, u).astype(jnp.float32) + bias
                xr, xz, xn = jnp.split(x, 3, -1)
                hr, hz, hn = jnp.split(hidden_part, 3, -1)
                r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
                h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
                return (h,), h
            gates = x + product(h, u).astype(jnp.float32)
            if kind == "rnn":
                h = jnp.tanh(gates)
                return (h,), h
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        def apply(p, x, key):
            inputs = product(x, p["w"]).astype(jnp.float32) + p["b"]
            zeros = jnp.zeros((x.shape[0], hidden), jnp.float32)
            state = (zeros, zeros) if kind == "lstm" else (zeros,)
            _, out = jax.lax.scan(lambda s, t: cell(s, t, p["u"], p["c"]), state, inputs.swapaxes(0, 1))
            return out.swapaxes(0, 1)
        return apply

    def dropout(p):
        def apply(_, x, key):
            keep = jax.random.bernoulli(key, 1 - p, x.shape)
            return jnp.where(keep, x / (1 - p), 0)
        return apply

    for layer in case["layers"]:
        kind = layer["type"]
        if kind == "linear":
            size = shape[-1] if layer.get("per_step") else int(np.prod(shape))
            flat = not layer.get("per_step")
            shape = [layer["out"]] if flat else [*shape[:-1], layer["out"]]
            add({"w": weight(size, layer["out"]), "b": jnp.zeros(layer["out"])},
                lambda p, x, key, flat=flat: product(x.reshape(x.shape[0], -1) if flat else x, p["w"])
                .astype(jnp.float32) + p["b"])
        elif kind == "conv2d":
            kernel, stride, pad = layer["kernel"], layer.get("stride", 1), layer.get("padding", 0)
            values = {"w": jnp.asarray(random.normal(size=(kernel, kernel, shape[0], layer["out"])) * 0.05,
                                       jnp.float32)}
            if layer.get("bias", True):
                values["b"] = jnp.zeros(layer["out"])

            def apply(p, x, key, stride=stride, pad=pad):
                y = jax.lax.conv_general_dilated(
                    x.astype(compute), p["w"].astype(compute), (stride, stride), [(pad, pad)] * 2,
                    dimension_numbers=("NHWC", "HWIO", "NHWC")).astype(jnp.float32)
                return y + p["b"] if "b" in p else y
            add(values, apply)
            shape = [layer["out"], *[(extent + 2 * pad - kernel) // stride + 1 for extent in shape[1:]]]
        elif kind == "maxpool2d":
            window = (1, layer["kernel"], layer["kernel"], 1)
            add({}, lambda p, x, key, window=window: jax.lax.reduce_window(
                x, -jnp.inf, jax.lax.max, window, window, "VALID"))
            shape = [shape[0], *[extent // layer["kernel"] for extent in shape[1:]]]
        elif kind in ("batchnorm", "layernorm"):
            channels = shape[0] if kind == "batchnorm" else shape

            def apply(p, x, key, batch=kind == "batchnorm"):
                axes = tuple(range(x.ndim - 1)) if batch else tuple(range(1, x.ndim))
                mean = x.mean(axes, keepdims=True)
                variance = x.var(axes, keepdims=True)
                return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["w"] + p["b"]
            add({"w": jnp.ones(channels), "b": jnp.zeros(channels)}, apply)
        elif kind == "dropout":
            add({}, dropout(layer["p"]))
        elif kind == "embedding":
            add({"w": weight(layer["vocabulary"], layer["out"])}, lambda p, x, key: p["w"][x])
            shape = [*shape, layer["out"]]
        elif kind in ("rnn", "gru", "lstm"):
            gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind] * layer["hidden"]
            for number in range(layer.get("layers", 1)):
                if number and layer.get("dropout"):
                    add({}, dropout(layer["dropout"]))
                add({"w": weight(shape[-1], gates), "u": weight(layer["hidden"], gates), "b": jnp.zeros(gates),
                     "c": jnp.zeros(gates)}, recurrent(kind, layer["hidden"]))
                shape = [*shape[:-1], layer["hidden"]]
        elif kind == "select":
            add({}, lambda p, x, key: x[:, -1])
            shape = shape[1:]
        else:
            act = {"relu": jax.nn.relu, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid,
                   "gelu": lambda x: jax.nn.gelu(x, approximate=False)}[kind]
            add({}, lambda p, x, key, act=act: act(x))

    def forward(p, x, key):
        keys = jax.random.split(key, len(parts))
        for values, part, own in zip(p, parts, keys):
            x = part(values, x, own)
        return x
    return parameters, forward


def jax_update(spec):
    """(initial state, update(parameters, gradients, state, step))"""
    import jax
    import jax.numpy as jnp
    lr, decay, momentum = spec["lr"], spec.get("weight_decay", 0.0), spec.get("momentum", 0.0)

    def sgd(p, g, m, t):
        if not momentum:
            return jax.tree.map(lambda a, d: a - lr * d, p, g), m
        m = jax.tree.map(lambda a, d: momentum * a + d, m, g)
        move = jax.tree.map(lambda a, d: d + momentum * a, m, g) if spec.get("nesterov") else m
        return jax.tree.map(lambda a, d: a - lr * d, p, move), m

    def adam(p, g, state, t):
        m, v = state
        m = jax.tree.map(lambda a, d: 0.9 * a + 0.1 * d, m, g)
        v = jax.tree.map(lambda a, d: 0.999 * a + 0.001 * d * d, v, g)
        a, b = 1 - 0.9 ** t, 1 - 0.999 ** t
        return jax.tree.map(lambda w, x, y: w * (1 - lr * decay) - lr * (x / a) / (jnp.sqrt(y / b) + 1e-8),
                            p, m, v), (m, v)

    def zeros(p):
        return jax.tree.map(jnp.zeros_like, p)
    if spec["type"] == "sgd":
        return (lambda p: zeros(p) if momentum else ()), sgd
    return (lambda p: (zeros(p), zeros(p))), adam


def jax_us(case, precision, device, seconds):
    import jax
    import jax.numpy as jnp
    import numpy as np
    batch, text = case["batch"], case["text"]
    parameters, forward = jax_net(case, jnp.bfloat16 if precision == "bf16" else jnp.float32)
    begin, update = jax_update(case["optimizer"])
    random = np.random.default_rng(1)
    if text:
        samples = jnp.asarray(random.integers(0, 65, (N // 8, text + 1), np.uint8))
    elif case["table"]:
        samples = jnp.asarray(random.normal(size=(TABLE_N, case["table"])).astype(np.float32))
    else:
        shape = case["shape"]
        shape = [*shape[1:], shape[0]] if len(shape) == 3 else shape  # channels last
        samples = jnp.asarray(random.integers(0, 256, (N, *shape), np.uint8))
    labels = jnp.asarray(random.normal(size=(TABLE_N, 1)).astype(np.float32) if case["table"]
                         else random.integers(0, 10, (N,)))

    def loss(p, taken, label, key):
        if text:
            out, label = forward(p, taken[:, :-1].astype(jnp.int32), key), taken[:, 1:].astype(jnp.int32)
        elif case["table"]:
            return jnp.mean((forward(p, taken, key) - label) ** 2)
        else:
            out = forward(p, taken.astype(jnp.float32) * (1 / 255), key)
        return -jnp.take_along_axis(jax.nn.log_softmax(out), label[..., None], -1).mean()

    def step(carry, chosen):
        p, state, key, t = carry
        g = jax.grad(loss)(p, samples[chosen], labels[chosen], jax.random.fold_in(key, t.astype(jnp.int32)))
        if case["clip"]:
            norm = jnp.sqrt(sum(jnp.sum(d * d) for d in jax.tree.leaves(g)))
            g = jax.tree.map(lambda d: d * jnp.minimum(1.0, case["clip"] / (norm + 1e-6)), g)
        t = t + 1
        p, state = update(p, g, state, t)
        return (p, state, key, t), None

    steps = 200 if device == "cuda" else 20
    names = {"fp32": "float32", "tf32": "tensorfloat32", "bf16": "bfloat16"}
    with jax.default_matmul_precision(names[precision]):
        orders = jnp.asarray(random.integers(0, len(samples), (steps, batch)))  # made beforehand, as ours is
        many = jax.jit(lambda c: jax.lax.scan(step, c, orders)[0], donate_argnums=0)
        carry = [(parameters, begin(parameters), jax.random.PRNGKey(0), jnp.float32(0))]

        def run():
            carry[0] = many(carry[0])
            jax.block_until_ready(carry[0])
        return median_us(run, steps, seconds)


def main():
    cases, out, device, seconds, *which = sys.argv[1:]
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    peers = {"torch": lambda c, p: torch_us(c, p, device, float(seconds), False),
             "compile": lambda c, p: torch_us(c, p, device, float(seconds), True),
             "jax": lambda c, p: jax_us(c, p, device, float(seconds))}
    names = {"torch": "PyTorch in a CUDA graph" if device == "cuda" else "PyTorch",
             "compile": "PyTorch compiled" + (" in a CUDA graph" if device == "cuda" else ""), "jax": "JAX scan"}
    with open(out, "a") as lines:
        for each in json.load(open(cases)):
            for peer in which or ["torch", "jax"]:
                line = {"net": each["case"]["name"], "precision": each["precision"], "peer": names[peer]}
                try:
                    line["us"] = round(peers[peer](each["case"], each["precision"]), 2)
                except Exception as error:  # one peer that fails must not end the others
                    line["error"] = repr(error)[:300]
                print(json.dumps(line), flush=True)
                lines.write(json.dumps(line) + "\n")
                lines.flush()


main()
