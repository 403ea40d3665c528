#!/usr/bin/env python3
"""Measures this crate, rdiff and fast_rsync on streams: user CPU time, peak memory, length of the output.

    cargo build --release -p dsync-delta --examples
    python3 crates/dsync-delta/examples/figures.py target/release/examples [ROUNDS] [MIB]

The programs take turns, and each figure is the median of all rounds: other work on the machine disturbs
all three alike. Files lie in /dev/shm; times are those of /usr/bin/time (Debian package time). Blocks are 8 KiB for all."""

import os
import random
import statistics
import subprocess
import sys

BLOCK_LEN = "8192"
DIR = "/dev/shm/dsync-delta-figures"


def run(args, source, target):
    """Runs a program between two files; returns user CPU seconds and peak memory in MiB."""
    timed = ["/usr/bin/time", "-q", "-f", "%U %M", "-o", f"{DIR}/time", *args]
    with open(source, "rb") as input, open(target, "wb") as output:
        subprocess.run(timed, stdin=input, stdout=output, check=True)
    with open(f"{DIR}/time") as file:
        user, peak = file.read().split()
    return float(user), int(peak) / 1024


def noise(seed, length):
    draw = random.Random(seed)
    return b"".join(draw.randbytes(1 << 20) for _ in range(length >> 20))


def make(case, length):
    """Writes the basis and the new file of a case."""
    basis, draw = noise(1, length), random.Random(2)
    new = basis
    if case == "1 % of pages":
        new = bytearray(basis)
        for _ in range(length // 4096 // 100):
            at = draw.randrange(length // 4096) * 4096
            new[at : at + 4096] = draw.randbytes(4096)
    if case == "1000 insertions":
        pieces, last = [], 0
        for at in sorted(draw.sample(range(length), 1000)):
            pieces += [basis[last:at], draw.randbytes(draw.randint(1, 64))]
            last = at
        new = b"".join(pieces + [basis[last:]])
    if case == "all new":
        new = noise(3, length)
    for name, content in [("basis", basis), ("new", new)]:
        with open(f"{DIR}/{name}", "wb") as file:
            file.write(content)


def programs(examples):
    ours, theirs = f"{examples}/delta", f"{examples}/fast_rsync"
    return {
        "dsync-delta": ([ours, "-b", BLOCK_LEN, "signature", "-", "-"], [ours, "delta", "{}", "-", "-"], [ours, "apply", "{}", "-", "-"]),
        "rdiff": (["rdiff", "-b", BLOCK_LEN, "signature", "-", "-"], ["rdiff", "delta", "{}", "-", "-"], ["rdiff", "patch", "{}", "-", "-"]),
        "fast_rsync": ([theirs, "signature", BLOCK_LEN], [theirs, "delta", "{}"], [theirs, "apply", "{}"]),
    }


def main():
    examples, rounds, mib = sys.argv[1], int((sys.argv + ["5"] * 2)[2]), int((sys.argv[3:] + ["256"])[0])
    os.makedirs(DIR, exist_ok=True)
    path = lambda name: f"{DIR}/{name}"
    print("| case | program | signature: s, MiB, bytes | delta: s, MiB, bytes | apply: s, MiB |\n|---|---|---|---|---|")
    for case in ["identical", "1 % of pages", "1000 insertions", "all new"]:
        make(case, mib << 20)
        figures = {name: ([], [], []) for name in programs(examples)}
        for _ in range(rounds):
            for name, (signature, delta, apply) in programs(examples).items():
                steps = figures[name]
                fill = lambda args, file: [arg.format(path(file)) for arg in args]
                steps[0].append(run(signature, path("basis"), path(f"{name}.sig")))
                steps[1].append(run(fill(delta, f"{name}.sig"), path("new"), path(f"{name}.delta")))
                steps[2].append(run(fill(apply, "basis"), path(f"{name}.delta"), path("rebuilt")))
                subprocess.run(["cmp", path("rebuilt"), path("new")], check=True)
        for name, steps in figures.items():
            mid = lambda step, which: statistics.median(figure[which] for figure in steps[step])
            cell = lambda step: f"{mid(step, 0):.2f}, {mid(step, 1):.1f}"
            size = lambda kind: f"{os.path.getsize(path(f'{name}.{kind}')):,}"
            print(f"| {case} | {name} | {cell(0)}, {size('sig')} | {cell(1)}, {size('delta')} | {cell(2)} |", flush=True)
    for name in os.listdir(DIR):
        os.unlink(path(name))
    os.rmdir(DIR)


main()
