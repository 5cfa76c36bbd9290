"""8-bit forms of ONNX files: calibrated on some samples, measured on others, kept where accurate and fast enough."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from arrn.data import Examined
from arrn.deploy.export import Say, described
from arrn.deploy.onnx_program import INPUT, entrance_name
from arrn.deploy.parts import Parts
from arrn.deploy.torch_programs import quietly
from arrn.errors import ArrnError, first_line
from arrn.runs import load_network, open_samples
from arrn.runtime.manifest import ExportedFile, LevelEntry, Manifest, Quantised
from arrn.runtime.onnx_engine import open_session
from arrn.signal.grid import Grid, format_grid
from arrn.signal.resample import resample
from arrn.timing import time_call
from arrn.writing import write_atomically

LARGEST_LOSS = 0.01
"""The accuracy that an 8-bit file may lose."""

LEAST_SPEED = 1.3
"""How many times as fast as the level's own file it must be."""

CALIBRATED, MEASURED = 300, 2000
"""How many samples the ranges of numbers inside the network are found on, and accuracies are measured on."""

_Array: TypeAlias = np.ndarray[Any, Any]

_TOGETHER = 50
_QUANTISED = ["Conv", "Gemm"]  # nearly all of the work; resampling and sums stay in float32
_ROUNDS = 5  # of timing, in which the two files take turns
_ROUNDING = 1e-9  # of differences of accuracies


@dataclass(frozen=True)
class Samples:
    """Some samples of a data set, as they are stored, each of its own size.

    Attributes:
        examined: the data set's split.
        indices: which samples of it.
    """

    examined: Examined
    indices: Sequence[int]

    @classmethod
    def some(cls, examined: Examined, most: int) -> Samples:
        """At most so many of them, drawn with the seed 0."""
        if most < 1:
            raise ArrnError(f"quantisation needs at least 1 sample, got {most}")
        order = np.random.default_rng(0).permutation(len(examined.sizes))[:most]
        return cls(examined, sorted(order.tolist()))

    @property
    def labels(self) -> _Array:
        """The class of each."""
        labels: _Array = self.examined.source.labels.numpy()[list(self.indices)]
        return labels

    def batches(self, grid: Grid, parts: Parts) -> Iterator[_Array]:
        """All of them on a grid, as the files of its level take them: float32 of shape (batch, channels, *grid)."""
        for first in range(0, len(self.indices), _TOGETHER):
            chosen = self.indices[first : first + _TOGETHER]
            signals = (self.examined.source.read(index)[None].float() for index in chosen)
            yield torch.cat([resample(signal, grid, parts.kernel) for signal in signals]).numpy()


@dataclass(frozen=True)
class Quantiser:
    """Adds an 8-bit file for each level to an export, where that file is worth having.

    Weights and inputs of convolutions, and of the last layer, become 8-bit numbers. The ranges of the inputs are those
    that they have on the calibration samples. A file is kept if it loses at most `LARGEST_LOSS` of accuracy against the
    level's own file, and is at least `LEAST_SPEED` times as fast for one input on one thread. What was measured stands
    in the manifest in any case.

    Attributes:
        calibration: samples that the network was trained on.
        test: other samples, for the accuracies.
    """

    calibration: Samples
    test: Samples

    def __call__(self, folder: Path, parts: Parts, manifest: Manifest, say: Say) -> Manifest:
        """The manifest with what came of each level; files that are kept lie in the folder."""
        if manifest.output != "probabilities":
            raise ArrnError("the network returns no classes, so the accuracy of 8-bit files cannot be measured")
        levels = []
        for entry in manifest.levels:
            found = self._level(folder, parts, entry)
            say(f"{_name(entry)}: {'kept' if found.kept else 'not kept'}: {found.reason}")
            levels.append(replace(entry, int8=found))
        return replace(manifest, levels=tuple(levels))

    def _level(self, folder: Path, parts: Parts, entry: LevelEntry) -> Quantised:
        found = Quantised(None, None, None, None, 0, len(self.calibration.indices), "")
        path = folder / _name(entry)
        try:
            content = quantise(
                folder / entry.exported.file,
                self.calibration.batches(entry.grid, parts),
                entrance_name(entry.grid),
            )
            write_atomically(path, content)
            file = described(path, content)
            whole, small = (open_session(folder, each, threads=1) for each in (entry.exported, file))
            found = replace(found, speed=_compare_speed(whole, small, (1, parts.channels, *entry.grid)))
            found = self._with_accuracy(found, folder, entry, file, parts)
        except Exception as error:  # the quantiser and the runtime raise errors of many types
            found = replace(found, reason=f"it failed: {first_line(error)}")
        if found.accuracy is not None and found.float_accuracy is not None and found.speed is not None:
            good, reason = judge(found.accuracy, found.float_accuracy, found.samples, found.speed)
            found = replace(found, kept=file if good else None, reason=reason)
        if found.kept is None:
            path.unlink(missing_ok=True)
        return found

    def _with_accuracy(
        self, found: Quantised, folder: Path, entry: LevelEntry, file: ExportedFile, parts: Parts
    ) -> Quantised:
        sessions = [open_session(folder, each) for each in (entry.exported, file)]
        right = np.zeros(2, int)
        labels = iter(self.test.labels)
        for batch in self.test.batches(entry.grid, parts):
            expected = np.array([next(labels) for _ in batch])
            right += [int((_answer(session, batch).argmax(1) == expected).sum()) for session in sessions]
        samples = len(self.test.indices)
        whole, small = (right / samples).tolist()
        return replace(found, float_accuracy=whole, accuracy=small, samples=samples)


def open_quantiser(
    folder: Path, dataset: str | None = None, data: str | None = None, measured: int = MEASURED
) -> Quantiser:
    """A quantiser with samples of the data set that the network in `folder` was trained on.

    Args:
        folder: a finished run, or any folder that `arrn.save` wrote.
        dataset: another data set than the run's, with the same classes.
        data: another place for it.
        measured: samples of the test split that accuracies are of, at most.
    """
    model, metadata, _ = load_network(folder, torch.device("cpu"))
    train, test = (
        open_samples(folder, model, metadata, split, dataset=dataset, data=data, aspect=metadata.aspect)
        for split in ("train", "test")
    )
    return Quantiser(Samples.some(train, CALIBRATED), Samples.some(test, measured))


def judge(accuracy: float, float_accuracy: float, samples: int, speed: float) -> tuple[bool, str]:
    """Whether an 8-bit file is kept, and why.

    >>> judge(0.80, 0.805, 2000, 1.5)
    (True, '80.0% right against 80.5% in float32 (2,000 samples), 1.50 times as fast')
    >>> judge(0.80, 0.82, 2000, 1.2)[0]
    False
    """
    measured = (
        f"{accuracy:.1%} right against {float_accuracy:.1%} in float32 ({samples:,} samples), {speed:.2f} times as fast"
    )
    wrong = []
    if float_accuracy - accuracy > LARGEST_LOSS + _ROUNDING:
        wrong.append(f"it may lose {100 * LARGEST_LOSS:g} point of accuracy at most")
    if speed < LEAST_SPEED:
        wrong.append(f"it should be {LEAST_SPEED:g} times as fast at least")
    return not wrong, f"{measured}{': ' * bool(wrong)}{', and '.join(wrong)}"


def quantise(file: Path, batches: Iterable[_Array], entrance: str) -> bytes:
    """The 8-bit form of an ONNX file.

    Args:
        file: of one level.
        batches: inputs on which the ranges of numbers are found.
        entrance: the name of the first convolution, which stays in float32: sound has more than 8 bits.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # of a package without types
        def __init__(self) -> None:
            self.remaining = iter(batches)

        def get_next(self) -> dict[str, _Array] | None:
            batch = next(self.remaining, None)
            return None if batch is None else {INPUT: batch}

    with tempfile.TemporaryDirectory() as place, quietly():
        whole, made = Path(place) / "whole.onnx", Path(place) / "int8.onnx"
        whole.write_bytes(_fold_scales(onnx.load(file)).SerializeToString())
        quantize_static(
            str(whole),
            str(made),
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=_QUANTISED,
            nodes_to_exclude=[entrance],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return made.read_bytes()


def _fold_scales(model: Any) -> Any:
    """The model, with a scale and a shift of channels after a convolution folded into it; not in branches.

    Files of tied networks have such scales, beside weights that branches share.
    """
    from onnx import numpy_helper

    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    takers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            takers.setdefault(name, []).append(node)

    def next_node(node: Any, kind: str) -> tuple[Any, _Array] | None:
        following = takers.get(node.output[0], [])
        if [each.op_type for each in following] != [kind]:
            return None
        others = [name for name in following[0].input if name in constants]
        return (following[0], constants[others[0]]) if others else None

    for convolution in [node for node in graph.node if node.op_type == "Conv" and len(node.input) == 2]:
        scaled = next_node(convolution, "Mul")
        shifted = None if scaled is None else next_node(scaled[0], "Add")
        if scaled is None or shifted is None:
            continue
        weight, bias = (f"{convolution.output[0]}_{part}" for part in ("weight", "bias"))
        unscaled = constants[convolution.input[1]]
        factors = scaled[1].reshape(-1, *[1] * (unscaled.ndim - 1))
        graph.initializer.append(numpy_helper.from_array(unscaled * factors, weight))
        graph.initializer.append(numpy_helper.from_array(shifted[1].reshape(-1), bias))
        convolution.input[1:] = [weight, bias]
        convolution.output[0] = shifted[0].output[0]
        for node, _ in (scaled, shifted):
            graph.node.remove(node)
    used = set(_used_names(graph))
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    return model


def _used_names(graph: Any) -> Iterator[str]:
    """What the nodes of a graph and of its branches take."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _used_names(attribute.g)
                yield from (value.name for value in attribute.g.output)


def _name(entry: LevelEntry) -> str:
    return f"level-{format_grid(entry.grid)}-int8.onnx"


def _answer(session: Any, batch: _Array) -> _Array:
    answers: _Array = session.run(None, {INPUT: batch})[0]
    return answers


def _compare_speed(whole: Any, small: Any, shape: Sequence[int]) -> float:
    """How many times as fast as the first the second session is: the median over rounds."""
    batch = np.random.default_rng(0).uniform(0, 255, shape).astype(np.float32)
    calls: list[Callable[[], object]] = [lambda session=each: _answer(session, batch) for each in (whole, small)]  # type: ignore[misc]
    ratios = []
    for _ in range(_ROUNDS):
        first, second = (time_call(call, repeats=5, at_least=0.01).median for call in calls)
        ratios.append(first / second)
    return statistics.median(ratios)
