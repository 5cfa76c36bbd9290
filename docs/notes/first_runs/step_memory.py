"""Memory of a training step of the ladders that `arrn advise` proposes: python step_memory.py.

What `--batch-size auto` measures before a run, on a CPU in float32: bytes do not depend on how busy the machine is.
"""

import torch

import arrn
from arrn.data import IMAGE, Augmentation, Normalisation
from arrn.runs.proposing import ladder_for, options_for
from arrn.runs.trial_step import try_steps
from arrn.training import Recipe, TrainingStep

PLAIN = Normalisation((0.5,) * 3, (0.5,) * 3)


def make_step(network: torch.nn.Module) -> TrainingStep:
    """As a run of the usual recipe takes it."""
    return TrainingStep(network, Augmentation(PLAIN, True, 0.125), Recipe(), 1, 0)


if __name__ == "__main__":
    print("| top of the ladder | batch 8 | 32 | 128 |\n|---|--:|--:|--:|")
    for top in (32, 64, 96, 128):
        ladder = ladder_for(top, 2)
        network = arrn.create_model("arrn", num_classes=10, **options_for(ladder, 2))
        cost = try_steps(network, make_step, IMAGE, (top, top), free=8e9, most=128)
        row = " | ".join(f"{cost.memory(batch) / 1e9:.2g} GB" for batch in (8, 32, 128))
        print(f"| {' -> '.join(map(str, ladder))} | {row} |", flush=True)
