"""Feeds damaged files to arrn and looks at what comes of it: `python tools/fuzz.py --cases 5000`.

Each case damages one file of a small network, run or data set, and does with it what a user would, through the command
line or the library, in a process forked from one that has loaded everything. It passes when the file works or is
refused in one line. It fails by any other error, a crash, a hang, memory above the limit, control characters on the
terminal, a file changed outside of the case's folder, code run from a file, or damage to weights that goes unnoticed.
Half of the cases have their checksums made valid again. A case depends on the seed and its number alone:
`--replay SEED-NUMBER` does one again and shows all of it. Linux only: limits and peak memory are the system's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONIOENCODING": "utf-8"}

import torch

from fuzzing.cases import Fuzzer, prepare
from fuzzing.verdicts import GOOD, Verdict, in_a_line, table


def main() -> int:
    """Runs cases, prints the table; the exit status tells whether any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--minutes", type=float, help="stop after so long, whatever is left")
    parser.add_argument("--kind", action="append", help="only these files; repeatable")
    parser.add_argument("--intact", action="store_true", help="only show what comes of every use with nothing broken")
    parser.add_argument("--replay", metavar="SEED-NUMBER", help="do one case again and show it")
    parser.add_argument(
        "--table", metavar="LOG", type=Path, nargs="+", help="only show the table of runs' cases-*.jsonl"
    )
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="the folder for failures")
    given = parser.parse_args()
    if given.table:
        lines = [line for log in given.table for line in log.read_text().splitlines()]
        print(_summary([Verdict(**json.loads(line)) for line in lines]))
        return 0
    seed, number = map(int, given.replay.split("-")) if given.replay else (given.seed, given.first)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="arrn-fuzz-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve()
        fuzzer = Fuzzer(root, seed, prepare(root))
        if given.replay:
            print(json.dumps(asdict(fuzzer.case(number, given.out, show=True)), indent=2))
            return 0
        return _run_many(fuzzer, given)


def _run_many(fuzzer: Fuzzer, given: argparse.Namespace) -> int:
    if given.intact:
        for verdict in fuzzer.intact():
            print(in_a_line(verdict))
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    began, verdicts = time.monotonic(), []
    for number in range(given.first, given.first + given.cases):
        if given.kind and fuzzer.kinds[number % len(fuzzer.kinds)] not in given.kind:
            continue
        if given.minutes and time.monotonic() - began > 60 * given.minutes:
            break
        verdict = fuzzer.case(number, given.out)
        verdicts.append(verdict)
        with (given.out / f"cases-{fuzzer.seed}-{given.first}.jsonl").open("a") as log:
            log.write(json.dumps(asdict(verdict)) + "\n")
        if verdict.verdict not in GOOD:
            print(in_a_line(verdict), flush=True)
    print(f"\n{_summary(verdicts)}, in {time.monotonic() - began:.0f} s")
    return int(any(verdict.verdict not in GOOD for verdict in verdicts))


def _summary(verdicts: list[Verdict]) -> str:
    """The table, and a line with the extremes."""
    failed = sum(verdict.verdict not in GOOD for verdict in verdicts)
    seeds = ", ".join(map(str, sorted({verdict.seed for verdict in verdicts})))
    slowest, most = max(verdict.seconds for verdict in verdicts), max(verdict.memory for verdict in verdicts)
    return (
        f"{table(verdicts)}\n{len(verdicts):,} cases of seed {seeds}, {failed} failed; slowest {slowest:.1f} s, most "
        f"memory {most / 2**30:.2f} GB above an idle process"
    )


if __name__ == "__main__":
    sys.exit(main())
