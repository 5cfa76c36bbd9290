"""`arrn train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from arrn.cli.console import Data, MaxPixels, assignments, console, say, whole_numbers
from arrn.watching import watch


def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A name such as sample or cifar10, the path of a folder, or an address such as "
            "s3://bucket/folder. With "
            "--resume and --out it may be left out."
        ),
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="A name that `arrn models` lists; timm:NAME or torchvision:NAME, which is transplanted; or "
            "package.module:function, a builder of your own, with --import package.module."
        ),
    ] = None,
    pretrained: Annotated[
        bool,
        typer.Option(
            "--pretrained",
            help="Start from trained weights of --model: those of timm or torchvision, or of weights/ in a clone.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The run's folder [default: runs/DATASET-MODEL-seedS].")] = None,
    data: Data = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.")] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|auto", help="Samples per step; auto chooses by the number of samples and the memory."
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="The learning rate at the start; it falls by half a cosine.")
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(help="The p of Laplacian dropout: how likely each level is to be dropped.")
    ] = None,
    resolutions: Annotated[
        str | None,
        typer.Option(
            help="For networks without levels: share every batch out over these resolutions, such as 32,16,8."
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe by name, such as frontier, or a TOML file with options.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any option of the recipe; repeatable.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any option of the model; repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all random numbers.")] = None,
    holdout: Annotated[
        int | None, typer.Option(help="How many samples to keep out of the training set, for validation.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="The weights to save: last, of the last epoch, or best, of the epoch with the best accuracy "
            "on the samples held "
            "out [default: last]."
        ),
    ] = None,
    window: Annotated[
        float | None, typer.Option(help="Seconds to which each clip of sound is cropped or padded [default: 1].")
    ] = None,
    sample_rate: Annotated[
        int | None,
        typer.Option(
            help="Samples per second of sound. Clips of another rate are resampled [default: the set's own rate]."
        ),
    ] = None,
    aspect: Annotated[
        str | None,
        typer.Option(
            help="How to fit images of other proportions than the network's grids: stretch, pad (with mirrored "
            "edges) or crop (to the middle) [default: stretch]."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out samples that cannot be read.")] = False,
    max_pixels: MaxPixels = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Run the network through torch.compile.")] = False,
    captured: Annotated[
        bool, typer.Option("--capture/--no-capture", help="On a GPU, replay steps from a CUDA graph.")
    ] = True,
    sync_batch_norm: Annotated[
        bool,
        typer.Option("--sync-batch-norm", help="With torchrun on GPUs: batch norms see the samples of all processes."),
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Give the same bits each time, on a GPU too; slower.")
    ] = False,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--in-memory", help="Read samples as needed, or keep them in memory [default: keep what fits]."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="How many processes read and decode streamed samples.")] = 2,
    shuffle_memory: Annotated[
        int,
        typer.Option(
            help="The size in MiB of the window of encoded samples within which streamed shards are shuffled."
        ),
    ] = 128,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            help="Epochs between checkpoints, such as 2 or 0.25 [default: one after an epoch when the last is half a "
            "minute old, and one within an epoch when the last is ten minutes old]."
        ),
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write a log for TensorBoard.")] = False,
) -> None:
    """Train a network by the paper's recipe; the network, its log and its checkpoints are written to a folder.

    A run that was interrupted or killed continues with --resume, to the same result. Images may differ in size: each
    image goes to the level of the network that fits it. Clips of sound become windows of one length, and their
    resolution is the number of samples in a window.

    Examples:

    arrn train sample --epochs 5

    arrn train cifar10 --model arrn_cifar10 --seed 1 --out runs/first --device cuda

    arrn train cifar10 --data ~/data/cifar10 --model resnet18 --resolutions 32,24,16,8

    arrn train ~/pictures --model arrn --option sizes=[64,32,16] --option features=[32,64,128] --holdout 500

    arrn train ~/pictures --model timm:regnety_002 --pretrained --option size=128 --dropout 0.3

    arrn train ~/digits --model arrn_audio_small --window 1 --sample-rate 8000

    arrn train adrenalmnist3d --data ~/medmnist --model arrn_volume_small --batch-size 32

    arrn train s3://bucket/imagenet --model arrn --batch-size 256 --shuffle-memory 1024

    arrn train --resume --out runs/first
    """
    from arrn.data import suggesting_skip_bad
    from arrn.runs import Machine, Request, run_training, settle

    flags: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate}
    if batch_size is not None:
        flags["batch_size"] = int(batch_size) if batch_size.lstrip("-").isdecimal() else batch_size
    flags["resolutions"] = whole_numbers("--resolutions", resolutions) or None
    flags = {name: value for name, value in flags.items() if value is not None}
    options = assignments("--option", option or [])
    if dropout is not None:
        options["dropout"] = dropout
    given: dict[str, Any] = {"seed": seed, "holdout": holdout, "keep": keep, "aspect": aspect, "window": window}
    given |= {"sample_rate": sample_rate, "data": data, "skip_bad": skip_bad or None, "pretrained": pretrained or None}
    changes = flags | assignments("--set", set_ or [])
    request = Request(dataset, model, out, recipe, changes, options, given, resume)
    with suggesting_skip_bad("--skip-bad", skip_bad or resume):
        settings, folder = settle(request, device=device, max_pixels=max_pixels, say=say)
    machine = Machine(
        device=device,
        stream=stream,
        workers=workers,
        shuffle_memory=shuffle_memory,
        compiled=compiled,
        deterministic=deterministic,
        checkpoint_every=checkpoint_every,
        tensorboard=tensorboard,
        captured=captured,
        sync_batch_norm=sync_batch_norm,
        max_pixels=max_pixels,
    )
    with watch(console) as watcher, suggesting_skip_bad("--skip-bad", skip_bad or resume):
        run_training(settings, folder, machine, resume, watcher, say)
    say(f"trained network: {folder}{next_step(folder)}")


def next_step(folder: Path) -> str:
    """What to do with the run, if there are samples that it has not seen."""
    from arrn.runs.settings import read_run_file

    splits = read_run_file(folder).get("splits", [])
    options = {"test": "", "validation": " --split validation"}
    usual = next((split for split in options if split in splits), None)
    return "" if usual is None else f"  (next: arrn evaluate {folder}{options[usual]})"
