"""`--deterministic` gives the same bits whatever the tuning cache holds: model files are equal byte for byte, those of
several ranks too, and every plan of a run has the kernels of the fixed order."""

import json
import shutil
import sys

sys.dont_write_bytecode = True
import mpi
import tool

NETS = {
    "mlp": ('[{type="linear",out=17},{type="relu"},{type="linear",out=4}]', "16"),
    "conv": ('[{type="conv2d",out=5,kernel=3,padding=1},{type="batchnorm"},{type="relu"},'
             '{type="maxpool2d",kernel=2},{type="linear",out=4}]', "30"),
    "gru": ('[{type="gru",hidden=9},{type="select"},{type="linear",out=4}]', "24"),
}
PLANS = ("kernels", "kernels_last_batch", "kernels_evaluation", "kernels_evaluation_last_batch")


def fresh_cache(folder):
    """A cache without a plan; the ceilings, which change no result, need not be measured each time."""
    cache = folder / "cache" / "ridgeline"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    for file in (tool.BUILD / "test-cache" / "ridgeline").glob("ceilings-*.json"):
        shutil.copy(file, cache)
    return cache


def main():
    folder = tool.Folder(samples=203)  # batches of every net leave some samples
    tool.run("info", "--measure", "--threads", 2)
    env = tool.environment(XDG_CACHE_HOME=str(folder / "cache"))

    def train(net, *words):
        layers, batch = NETS[net]
        out = folder / "run"
        done = tool.run("train", folder.config, "--quiet", "--json", "-", "--force", "--threads", 2, "--out", out, "--set",
                        f"model.layers={layers}", "--set", f"train.batch={batch}", *words, env=env)
        return (out / "model.safetensors").read_bytes(), json.loads(done.stdout)

    for net in NETS:
        cache = fresh_cache(folder)
        once, report = train(net, "--deterministic", "--set", "run.tune=true")
        assert not (cache / "tuning.json").exists(), "a deterministic run was tuned"
        assert report["plan_source"] == "fixed order", report["plan_source"]
        plans = {key: report[key] for key in PLANS}
        assert plans["kernels"] and plans["kernels_last_batch"] and plans["kernels_evaluation"], plans

        train(net, "--set", "run.tune=true")  # leaves times and plans, which need not be those of the fixed order
        kept = json.loads((cache / "tuning.json").read_text())
        assert kept
        again, report = train(net, "--deterministic", "--set", "run.tune=true")
        assert {key: report[key] for key in PLANS} == plans, (plans, report)
        assert again == once, f"{net}: other bits with a full cache"
        assert json.loads((cache / "tuning.json").read_text()) == kept

        weights = tool.tensors(folder / "run" / "model.safetensors")
        train(net, "--set", "run.deterministic=true", "--no-tune")
        assert tool.tensors(folder / "run" / "model.safetensors") == weights, f"{net}: other bits with --no-tune"
        fresh_cache(folder)
        assert train(net, "--deterministic", "--set", "run.tune=true")[0] == once, f"{net}: other bits without a cache"

    if not mpi.missing():
        models = []
        for _ in range(2):
            fresh_cache(folder)
            done = mpi.launch(2, "train", folder.config, "--quiet", "--deterministic", "--set", "run.tune=true", "--force",
                              "--threads", 1, "--out", folder / "ranks", XDG_CACHE_HOME=str(folder / "cache"))
            code, _, _, said = mpi.end(done, 120)
            assert code == 0, said
            models.append((folder / "ranks" / "model.safetensors").read_bytes())
        assert models[0] == models[1], "two ranks give other bits"
    folder.close()


if __name__ == "__main__":
    main()
