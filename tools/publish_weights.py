"""Makes a folder for weights/ from a finished run: half precision, checksums, recipe, accuracies.

    python tools/publish_weights.py runs/reproduce/cifar10/arrn_small-seed0 weights/arrn_small --data ~/data/cifar10

Accuracies are those of the halved weights, measured here, on the test split of the run's own data set.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

import arrn
from arrn.datasets import facts_of
from arrn.evaluation import Report, write_report
from arrn.experiments.plan import resolutions_for
from arrn.figures.tables import markdown_table
from arrn.nn import count_parameters
from arrn.runs import evaluate_run, read_settings

WEIGHTS, SUMS = "model.safetensors", "SHA256SUMS"


def publish(run: Path, out: Path, data: str | None, device: str, resolutions: Sequence[int] = ()) -> Report:
    """Writes the folder; returns the evaluation."""
    settings = read_settings(run)
    if settings is None:
        raise arrn.ArrnError(f"{run} is not the folder of a run")
    model = arrn.load(run).half()
    wide = [name for name, tensor in model.state_dict().items() if not torch.isfinite(tensor).all()]
    if wide:
        raise arrn.ArrnError(f"half precision cannot hold {', '.join(wide)}")
    arrn.save(model, out)
    shutil.copyfile(run / "recipe.toml", out / "recipe.toml")
    sizes = resolutions or resolutions_for(facts_of(settings.dataset).size, settings.dataset)
    report = evaluate_run(out, sizes, dataset=settings.dataset, data=data or settings.data, device=device)
    write_report(report, out / "accuracy.json")
    (out / "README.md").write_text(_page(model, settings.seed, report), encoding="utf-8")
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")
    return report


def _page(model: torch.nn.Module, seed: int, report: Report) -> str:
    ways = list(dict.fromkeys((result["adapt"], result["policy"]) for result in report.results))
    sizes = list(dict.fromkeys(result["resolution"] for result in report.results))
    found = {(r["resolution"], r["adapt"], r["policy"]): r["accuracy"] for r in report.results}
    rows = [[_name(*way), *(f"{100 * found[size, *way]:.2f}" for size in sizes)] for way in ways]
    where = report.facts["provenance"]
    machine = where.get("gpu") or where["processor"]
    return f"""# {report.model}

{count_parameters(model):,} parameters in half precision (computed in float32), trained on {report.dataset} with seed
{seed} by `recipe.toml`. Accuracy in % on its test split, by these weights, evaluated on {machine} with torch
{where["torch"]}, commit {where.get("commit")}; `{SUMS}` lists the checksums.

{markdown_table(["", *map(str, sizes)], rows)}

```python
model = arrn.create_model("{report.model}", pretrained="weights/{report.model}")
```
"""


def _name(adapt: bool | None, policy: str | None) -> str:
    if adapt is None:
        return "accuracy"
    return f"{'adapted' if adapt else 'all levels'}, {policy}"


def main() -> None:
    """Publishes one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--data", help="the data set's root")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    report = publish(given.run, given.out, given.data, given.device)
    print(f"{given.out}: {(given.out / WEIGHTS).stat().st_size / 1e6:.1f} MB, {len(report.results)} accuracies")


if __name__ == "__main__":
    main()
