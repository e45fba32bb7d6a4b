#!/usr/bin/env python3
"""Compares our training steps with those of other frameworks, from runs on the same machine.

usage: compare_cpu.py RESULT.json PEERS.jsonl OURS.json [OURS.json ...]

Several runs of ours (before and after the peers) are combined by their median, so that a machine
that slows down meanwhile favours nobody. Writes RESULT.json and prints the table.
"""
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import date

# The goal for each, against the best peer.
GOALS = {("784-128-128-128-10", 32): 2.0, ("784-512-10", 128): 1.6,
         ("784-1024-1024-1024-10", 32): 1.6, ("784-512-10", 3000): 1.2}


def cpu_model():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if "model name" in line), "unknown")


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(["git", "-C", here, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def read_peers(path):
    peers = {}
    if not os.path.exists(path):
        return peers
    with open(path) as file:
        for line in map(json.loads, file):
            if line.get("w") == "mlp train" and "us" in line:
                key = "-".join(map(str, line["sizes"])), line["batch"]
                peers.setdefault(key, {})[line["peer"]] = line["us"]
    return peers


def main():
    result_path, peers_path, *ours_paths = sys.argv[1:]
    runs = [json.load(open(path)) for path in ours_paths]
    peers = read_peers(peers_path)
    rows = []
    for lines in zip(*runs):
        key = lines[0]["network"], lines[0]["batch"]
        ours = statistics.median(line["us_median"] for line in lines)
        limit = statistics.median(line["limit_us"] for line in lines)
        row = {"network": key[0], "batch": key[1], "ours_us": round(ours, 1), "limit_us": round(limit, 1),
               "limit_fraction": round(limit / ours, 3), "peers_us": peers.get(key, {}),
               "kernels": lines[0]["kernels"]}
        if row["peers_us"]:
            row["best_peer"] = min(row["peers_us"], key=row["peers_us"].get)
            row["ratio"] = round(row["peers_us"][row["best_peer"]] / ours, 2)
            row["goal"] = GOALS.get(key)
        rows.append(row)
    result = {"date": date.today().isoformat(), "commit": commit(), "cpu": cpu_model(),
              "python": platform.python_version(), "threads": runs[0][0]["threads"],
              "precision": runs[0][0]["precision"], "rows": rows}
    os.makedirs(os.path.dirname(os.path.abspath(result_path)), exist_ok=True)
    with open(result_path, "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    print(f"\n{result['cpu']}, {result['threads']} threads, {result['precision']}, us a training step")
    print("| net | batch | ours | of limit | best peer | its us | ratio | goal |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        best = row.get("best_peer")
        peer = f"{best} | {row['peers_us'][best]:.0f} | {row['ratio']:.2f}x | {row['goal'] or '-'}" if best \
            else "none ran | - | - | -"
        print(f"| {row['network']} | {row['batch']} | {row['ours_us']:.0f} | "
              f"{100 * row['limit_fraction']:.0f} % | {peer} |")
    print(f"kept in {result_path}")


if __name__ == "__main__":
    main()
