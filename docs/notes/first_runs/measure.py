"""Small networks on the shipped sample: how much Laplacian dropout, and which design, to propose by default.

python measure.py OUT NAME... runs the named rows of `RUNS` and appends a line of JSON for each to OUT. Every network
is trained on 4,000 of the 5,000 training images and evaluated on the other 1,000; the test images are not looked at.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from arrn.runs import Machine, RunSettings, evaluate_run, run_training
from arrn.training import Recipe

SMALL = {"sizes": (32, 16, 8), "features": (16, 32, 64), "expansion": (2, 3, 4), "depth": (1, 1, 2)}
DEEP = {"sizes": (32, 16, 8, 4), "features": (16, 32, 64, 96), "expansion": (2, 3, 4, 4), "depth": (1, 1, 1, 2)}
RESOLUTIONS = (32, 24, 16, 12, 8, 4)

RUNS = {f"small-p{p}": ("arrn", SMALL | {"dropout": p / 10}, {}) for p in (0, 2, 3, 4, 5, 6)}
RUNS |= {f"deep-p{p}": ("arrn", DEEP | {"dropout": p / 10}, {}) for p in (0, 2, 3, 4, 5, 6)}
for width in (8, 12):
    RUNS[f"tied{width}-p4"] = ("arrn_mini", {"width": width, "dropout": 0.4}, {})
RUNS["tied12-p4-slow"] = ("arrn_mini", {"width": 12, "dropout": 0.4}, {"learning_rate": 2e-3})
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "nesterov": True, "weight_decay": 5e-4, "warm_up": 1.0}
RUNS["tied12-p4-sgd"] = ("arrn_mini", {"width": 12, "dropout": 0.4}, SGD | {"final_learning_rate": 0.0})
RUNS["deep-p4-long"] = ("arrn", DEEP | {"dropout": 0.4}, {"epochs": 40})
for rate in (1e-3, 2e-3, 1e-2):
    RUNS[f"deep-p4-lr{rate:g}"] = ("arrn", DEEP | {"dropout": 0.4}, {"learning_rate": rate})
for batch in (16, 32, 128, 256):  # beside the 64 of deep-p4, with the same learning rate and as many epochs
    RUNS[f"deep-p4-batch{batch}"] = ("arrn", DEEP | {"dropout": 0.4}, {"batch_size": batch})
for name, sizes in (("two", (32, 16)), ("five", (32, 16, 8, 4, 2))):  # beside the three of small-p4, four of deep-p4
    RUNS[f"{name}-p4"] = (
        "arrn",
        {
            "sizes": sizes,
            "features": (16, 32, 64, 96, 128)[: len(sizes)],
            "expansion": (2, 3, 4, 4, 4)[: len(sizes)],
            "depth": (1, 1, 1, 1, 1)[: len(sizes) - 1] + (2,),
            "dropout": 0.4,
        },
        {},
    )
RUNS["small-p4-slow"] = ("arrn", SMALL | {"dropout": 0.4}, {"learning_rate": 2e-3})


def measure(name: str, epochs: int = 12) -> dict[str, object]:
    """Trains and evaluates one network."""
    model, options, recipe = RUNS[name]
    folder = Path(tempfile.mkdtemp())
    recipe = {"epochs": epochs, "batch_size": 64, "learning_rate": 5e-3} | recipe
    settings = RunSettings("sample", model, options, Recipe(**recipe), holdout=1000)
    began = time.monotonic()
    run_training(settings, folder / "run", Machine("cpu"))
    seconds = time.monotonic() - began
    report = evaluate_run(
        folder / "run", RESOLUTIONS, policies=("exact",), adapt=(True,), split="validation", device="cpu"
    )
    shutil.rmtree(folder)
    accuracies = {result["resolution"]: round(100 * result["accuracy"], 1) for result in report.results}
    return {"name": name, "accuracies": accuracies, "seconds": round(seconds), "provenance": report.facts["provenance"]}


if __name__ == "__main__":
    for chosen in sys.argv[2:]:
        line = measure(chosen)
        print(line["name"], line["accuracies"], line["seconds"], flush=True)
        with Path(sys.argv[1]).open("a") as file:
            file.write(json.dumps(line) + "\n")
