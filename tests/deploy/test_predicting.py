"""Predictions: the probabilities of the network run directly, for every size, kind of input and number of threads."""

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import arrn
from arrn.benchmarks.ways import can_compile
from arrn.data import BadSample
from arrn.deploy import Predictor
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.nn import ARRN
from arrn.nn.introspection import forward_memory
from arrn.runtime import Answer
from arrn.testing import awaken_norms
from saved_networks import Plain
from sounds import tone, wav_bytes

RGB = Metadata(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), class_names=("ant", "bee", "cat", "dog", "elk"))
GREY = Metadata(mean=(0.1,), std=(0.3,))

LADDERS: dict[str, tuple[dict[str, Any], Metadata]] = {
    "squares": ({"sizes": (16, 8, 4), "features": (4, 6, 8)}, RGB),
    "rectangles": ({"sizes": ((12, 16), (6, 16), (6, 5)), "features": (4, 6, 8)}, RGB),
    "cheap": ({"sizes": (16, 8, 4), "features": (4, 6, 8), "policy": "cheap"}, RGB),
    "sound": ({"sizes": (200, 100, 50), "features": (4, 6, 8), "ndim": 1, "in_channels": 1}, GREY),
    "volumes": ({"sizes": (8, 4), "features": (4, 6), "ndim": 3, "in_channels": 1}, GREY),
}


def awake(model: nn.Module, metadata: Metadata, shape: tuple[int, ...]) -> Any:
    awaken_norms(model, torch.randn(4, *shape), 0)
    model.metadata = metadata
    return model


@pytest.fixture(scope="module", params=LADDERS)
def network(request: pytest.FixtureRequest) -> ARRN:
    options, metadata = LADDERS[request.param]
    torch.manual_seed(0)
    model = arrn.create_model("arrn", depth=1, num_classes=5, **options)
    return awake(model, metadata, (model.in_channels, *model.grids[0]))


@pytest.fixture
def images_network() -> ARRN:
    options, metadata = LADDERS["squares"]
    return awake(arrn.create_model("arrn", depth=1, num_classes=5, **options), metadata, (3, 16, 16))


def directly(model: nn.Module, samples: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(model.metadata.normalise(torch.from_numpy(samples)[None])).softmax(1)[0]


def noise(model: ARRN, size: tuple[int, ...], seed: int = 0) -> np.ndarray:
    dtype, low, high = (np.int16, -32768, 32768) if model.ndim == 1 else (np.uint8, 0, 256)
    return np.random.default_rng(seed).integers(low, high, (model.in_channels, *size)).astype(dtype)


def probabilities(answer: Answer, classes: int = 5) -> torch.Tensor:
    told = dict(answer.top)
    keys = RGB.class_names if answer.name is not None else range(classes)
    return torch.tensor([told[key] for key in keys])


@settings(max_examples=8)
@given(data=st.data())
def test_every_size_is_answered_as_the_network_answers_it(network: ARRN, data: st.DataObject) -> None:
    top = network.grids[0]
    sizes = data.draw(st.lists(st.tuples(*(st.integers(1, 2 * side) for side in top)), min_size=1, max_size=5))
    signals = [noise(network, size, seed) for seed, size in enumerate(sizes)]
    # Channels first is what a tensor has; an array could be of any order here.
    answers = Predictor(network, device="cpu")([torch.from_numpy(each) for each in signals], top=5)
    for signal, size, answer in zip(signals, sizes, answers, strict=True):
        expected = directly(network, signal)
        torch.testing.assert_close(probabilities(answer), expected, rtol=0, atol=1e-5)
        assert answer.label == int(expected.argmax()) or expected.topk(2).values.diff().abs() < 1e-5
        assert answer.size == size
        assert answer.level == network.grids[network.level(size)]
        assert answer.probability == answer.top[0][1]
        assert answer.seconds > 0


def test_what_is_counted_of_the_network_is_in_no_inputs_time(
    images_network: ARRN, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    counted, run = Predictor._count, Predictor.run

    def count(self: Predictor, level: int) -> Any:
        done.append("counts")
        return counted(self, level)

    def timed(self: Predictor, *given: Any) -> Any:
        done.append("begins")
        answer = run(self, *given)
        done.append("ends")
        return answer

    monkeypatch.setattr(Predictor, "_count", count)
    monkeypatch.setattr(Predictor, "run", timed)
    Predictor(images_network, device="cpu")(torch.from_numpy(noise(images_network, (11, 6))))
    assert done == ["counts", "begins", "ends"]


def test_an_unknown_aspect_is_refused_before_any_input(images_network: ARRN) -> None:
    with pytest.raises(ArrnError, match=r"unknown aspect 'squeeze' \(known: 'crop', 'pad', 'stretch'\)"):
        Predictor(images_network, device="cpu", aspect="squeeze")


def test_a_policy_can_be_chosen(images_network: ARRN) -> None:
    picture = noise(images_network, (11, 6))
    for policy, level in (("exact", (16, 16)), ("cheap", (4, 4))):
        answer = Predictor(images_network, device="cpu", policy=policy)(torch.from_numpy(picture), top=5)
        assert answer.level == level
        with torch.no_grad():
            x = images_network.metadata.normalise(torch.from_numpy(picture)[None])
            expected = images_network.eval()(x, policy=policy).softmax(1)[0]
        torch.testing.assert_close(probabilities(answer), expected, rtol=0, atol=1e-5)
    with pytest.raises(arrn.ArrnError, match="unknown policy 'fast'"):
        Predictor(images_network, device="cpu", policy="fast")


def test_every_kind_of_picture_gives_the_same_answer(images_network: ARRN, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 13, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "a.png")
    encoded = (tmp_path / "a.png").read_bytes()
    first = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    scaled = first.astype(np.float64) / 255
    kinds = [
        *(tmp_path / "a.png", str(tmp_path / "a.png"), encoded, bytearray(encoded), memoryview(encoded), image),
        *(pixels, first, scaled, torch.from_numpy(first), torch.from_numpy(scaled), torch.from_numpy(scaled).half()),
    ]
    predictor = Predictor(images_network, device="cpu")
    expected = directly(images_network, first)
    for given_one in kinds:
        answer = predictor(given_one, top=5)
        assert isinstance(answer, Answer)
        torch.testing.assert_close(probabilities(answer), expected, rtol=0, atol=1e-3)
        assert answer.size == (9, 13)
    for several in (kinds, tuple(kinds), iter(kinds)):
        assert [answer.name for answer in predictor(several)] == [predictor(image).name] * len(kinds)
    assert len(predictor(np.stack([pixels, pixels]))) == len(predictor(torch.from_numpy(first[None]))) + 1 == 2
    assert predictor([]) == []


def test_grey_and_transparent_pictures_become_colour(images_network: ARRN) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    predictor = Predictor(images_network, device="cpu")
    expected = predictor(np.stack([grey] * 3, axis=-1)).top
    see_through = np.stack([grey, grey, grey, np.full_like(grey, 255)], axis=-1)
    for kind in (grey, grey[None], grey[..., None], Image.fromarray(grey), Image.fromarray(see_through)):
        found = predictor(kind).top
        assert [name for name, _ in found] == [name for name, _ in expected]
        assert found[0][1] == pytest.approx(expected[0][1], abs=1e-5)


def test_sound_and_volumes_are_read_from_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options, metadata = LADDERS["sound"]
    model = awake(arrn.create_model("arrn", depth=1, num_classes=5, **options), metadata, (1, 200))
    model.metadata = Metadata(mean=(0.1,), std=(0.3,), window=0.5)
    sound = Predictor(model, device="cpu")
    clip = tone(100, 7).astype(np.int16)
    answer = sound(wav_bytes(clip, 200), top=5)
    assert (sound.kind, answer.size, answer.level) == ("sound", (100,), (100,))
    torch.testing.assert_close(probabilities(answer), directly(model, clip[None]), rtol=0, atol=1e-5)
    for same in (clip, clip[None], clip[:, None], np.stack([clip, clip], 1), clip / np.float64(32768)):
        torch.testing.assert_close(probabilities(sound(same, top=5)), probabilities(answer), rtol=0, atol=1e-5)
    options, metadata = LADDERS["volumes"]
    volumes = awake(arrn.create_model("arrn", depth=1, num_classes=5, **options), metadata, (1, 8, 8, 8))
    array = np.random.default_rng(0).integers(0, 256, (4, 5, 6), dtype=np.uint8)
    np.save(tmp_path / "v.npy", array)
    predictor = Predictor(volumes, device="cpu")
    answers = [predictor(each, top=5) for each in (tmp_path / "v.npy", array, torch.from_numpy(array[None]))]
    assert len({answer.top for answer in answers}) == 1
    torch.testing.assert_close(probabilities(answers[0]), directly(volumes, array[None]), rtol=0, atol=1e-5)


BAD: list[tuple[object, str]] = [
    ("gone.png", "^gone.png: no such file"),
    (b"no image", "a file of 8 bytes: not an image of a known format"),
    (None, "type NoneType: it should be a path, the bytes of a file, an image of Pillow, an array or a tensor"),
    (3, "type int: it should be"),
    (np.zeros((8, 8), np.int64), "uint8 or float32, got int64"),
    (np.zeros((8, 8, 2), np.uint8), r"its shape is \(8, 8, 2\): it should be \(height, width, channels\)"),
    (torch.zeros(8, 8, 3), r"its shape is \(8, 8, 3\): it should be \(channels, height, width\)"),
    (np.zeros((0, 8, 3), np.uint8), "it is empty"),
    (np.full((8, 8, 3), 255.0), "its numbers go from 255 to 255: floats should go from 0 to 1"),
    (np.full((8, 8, 3), np.nan), "its numbers go from nan to nan"),
    (np.zeros((9000, 9000), np.uint8), "81,000,000 pixels, more than the limit of 64,000,000"),
    (np.array(["a"]), "uint8 or float32, got <U1"),
]


@pytest.mark.parametrize(("bad", "problem"), BAD)
def test_what_cannot_be_read_is_told_and_stops_no_others(images_network: ARRN, bad: object, problem: str) -> None:
    predictor = Predictor(images_network, device="cpu")
    good = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(BadSample, match=problem):
        predictor(bad)
    with pytest.raises(BadSample, match=problem):
        predictor([good, bad, good])
    before, wrong, after = predictor.stream([good, bad, good])
    assert isinstance(wrong, BadSample)
    assert isinstance(before, Answer)
    assert isinstance(after, Answer)
    assert before.top == after.top


def test_threads_share_a_predictor(images_network: ARRN) -> None:
    sizes = [(16, 16), (8, 5), (4, 4), (30, 20), (3, 16)]
    pictures = [noise(images_network, sizes[n % len(sizes)], n).transpose(1, 2, 0) for n in range(40)]
    expected = [directly(images_network, picture.transpose(2, 0, 1).copy()) for picture in pictures]
    predictor = Predictor(images_network, device="cpu")
    together = threading.Barrier(8)

    def work(thread: int) -> list[Answer]:
        together.wait()
        return [predictor(pictures[n], top=5) for n in range(thread, len(pictures), 8)]

    with ThreadPoolExecutor(8) as threads:
        for thread, answers in enumerate(threads.map(work, range(8))):
            for answer, right in zip(answers, expected[thread::8], strict=True):
                torch.testing.assert_close(probabilities(answer), right, rtol=0, atol=1e-5)


def test_inputs_of_one_level_run_together_and_batches_are_bounded(
    images_network: ARRN, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[int, int]] = []
    run = Predictor.run
    monkeypatch.setattr(Predictor, "run", lambda self, *a: (runs.append((a[0], len(a[1]))), run(self, *a))[1])
    predictor = Predictor(images_network, device="cpu")
    sides = [8, 16, 4, 8, 16, 16, 30]
    predictor([np.zeros((side, side, 3), np.uint8) for side in sides])
    assert sorted(runs) == [(0, 4), (1, 2), (2, 1)]
    runs.clear()
    monkeypatch.setattr("arrn.runtime.predictor._PLACES", 3 * 16 * 16)
    predictor([np.zeros((16, 16, 3), np.uint8)] * 7)
    assert runs == [(0, 3), (0, 3), (0, 1)]


def test_the_network_runs_on_as_many_inputs_as_fit_the_memory(
    images_network: ARRN, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [np.random.default_rng(n).integers(0, 255, (16, 16, 3), np.uint8) for n in range(7)]
    together = Predictor(images_network, device="cpu")
    expected = together(images, top=5)
    needed = forward_memory(images_network.at_resolution(16).fuse(), (1, 3, 16, 16))
    monkeypatch.setattr("arrn.deploy.predicting._MEMORY", 3 * needed)
    predictor = Predictor(images_network, device="cpu")
    counts: list[int] = []
    run = predictor._level(0)
    predictor._levels[0] = lambda x: (counts.append(len(x)), run(x))[1]
    monkeypatch.setattr(predictor, "prepare", lambda level, count: None)
    for answer, right in zip(predictor(images, top=5), expected, strict=True):
        torch.testing.assert_close(probabilities(answer), probabilities(right), rtol=0, atol=1e-6)
    assert counts == [3, 3, 1]


def test_inputs_are_let_go_before_all_are_read(images_network: ARRN, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[weakref.ref[np.ndarray]] = []
    most = 0

    def read() -> Iterator[np.ndarray]:
        nonlocal most
        for number in range(20):
            image = np.full((8 + number % 2, 8, 3), number, np.uint8)
            given.append(weakref.ref(image))
            most = max(most, sum(each() is not None for each in given))
            yield image

    predictor = Predictor(images_network, device="cpu")
    monkeypatch.setattr("arrn.runtime.predictor._NUMBERS", 3 * 3 * 8 * 8)
    answers = predictor(read())
    assert most <= 4  # three, and the one that the loop holds
    assert [answer.level for answer in answers] == [(8, 8), (16, 16)] * 10


def test_the_network_that_is_given_stays_as_it_is(images_network: ARRN) -> None:
    images_network.train()
    before = {name: value.clone() for name, value in images_network.state_dict().items()}
    predictor = Predictor(images_network, device="cpu")
    picture = np.zeros((16, 16, 3), np.uint8)
    expected = predictor(picture).top
    assert images_network.training
    assert all(torch.equal(value, before[name]) for name, value in images_network.state_dict().items())
    with torch.no_grad():
        images_network.stem.weight.zero_()
    assert predictor(picture).top == expected
    assert Predictor(images_network, device="cpu")(picture).top != expected


def test_half_precision_networks_answer_in_float32(images_network: ARRN) -> None:
    picture = noise(images_network, (8, 8))
    expected = Predictor(images_network, device="cpu")(torch.from_numpy(picture)).probability
    assert Predictor(images_network.half(), device="cpu")(torch.from_numpy(picture)).probability == pytest.approx(
        expected, abs=0.01
    )


@pytest.mark.parametrize("kind", ["fixed", "switchable", "fourier", "transplant", "plain"])
def test_other_networks_answer_too(kind: str) -> None:
    torch.manual_seed(0)
    model = {
        "fixed": lambda: arrn.create_model("resnet18_small_stem", size=8, width=2, num_classes=5),
        "switchable": lambda: arrn.create_model("resnet18_switchable", sizes=(16, 8), width=2, num_classes=5),
        "fourier": lambda: arrn.create_model("fourier_operator", size=16, features=4, modes=2, depth=1, num_classes=5),
        "transplant": lambda: arrn.transplant(Plain(stages=2), 16),
        "plain": Plain,
    }[kind]()
    model.metadata = RGB
    model.eval()
    predictor = Predictor(model, device="cpu")
    sizes = [(8, 8), (7, 5), (16, 16), (20, 12) if kind != "fourier" else (15, 3), (8, 8)]
    pictures = [np.random.default_rng(n).integers(0, 256, (3, *size), dtype=np.uint8) for n, size in enumerate(sizes)]
    for picture, answer in zip(pictures, predictor([torch.from_numpy(each) for each in pictures], top=5), strict=True):
        torch.testing.assert_close(probabilities(answer), directly(model, picture), rtol=0, atol=1e-5)
        if kind != "plain":
            assert answer.level == arrn.models.entry_grid(model, picture.shape[1:])
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda each: predictor(torch.from_numpy(each), top=5), pictures * 4))
    for answer, picture in zip(found, pictures * 4, strict=True):
        torch.testing.assert_close(probabilities(answer), directly(model, picture), rtol=0, atol=1e-5)


def test_what_makes_no_predictor_is_told(images_network: ARRN, tmp_path: Path) -> None:
    with pytest.raises(arrn.ArrnError, match="this network does not say how inputs are normalised"):
        Predictor(Plain(), device="cpu")
    assert Predictor(Plain(), device="cpu", metadata=RGB)(np.zeros((4, 4, 3), np.uint8)).name in RGB.class_names
    with pytest.raises(arrn.ArrnError, match=r"one for each channel, got \(0.1,\)"):
        Predictor(images_network, device="cpu", metadata=GREY)
    with pytest.raises(arrn.ArrnError, match="is not a directory"):
        Predictor(tmp_path / "gone")
    with pytest.raises(arrn.ArrnError, match="unknown device 'gpu'"):
        Predictor(images_network, device="gpu")
    with pytest.raises(arrn.ArrnError, match="capture=True records CUDA graphs, but the device is cpu"):
        Predictor(images_network, device="cpu", capture=True)
    for top in (0, 1.5, True):
        with pytest.raises(arrn.ArrnError, match="top is the number of classes in an answer"):
            Predictor(images_network, device="cpu")([], top=top)


def test_three_lines_from_a_saved_network_to_a_label(images_network: ARRN, tmp_path: Path) -> None:
    arrn.save(images_network, tmp_path / "net")
    predictor = arrn.Predictor(tmp_path / "net", device="cpu")
    answer = predictor(np.zeros((8, 8, 3), np.uint8))
    assert answer.name in RGB.class_names
    assert repr(predictor) == "Predictor(image, 16 -> 8 -> 4, exact, 5 classes)"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # compilers warn about their own insides
def test_a_compiled_predictor_gives_the_same_answers(images_network: ARRN) -> None:
    if not can_compile(torch.device("cpu")):
        pytest.skip("nothing compiles here")
    pictures = [torch.from_numpy(noise(images_network, (8, 8), n)) for n in range(3)]
    predictor = Predictor(images_network, device="cpu", compile=True)
    for picture, answer in zip(pictures, predictor(pictures, top=5), strict=True):
        torch.testing.assert_close(probabilities(answer), directly(images_network, picture.numpy()), rtol=0, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_recorded_predictor_gives_the_same_answers(images_network: ARRN) -> None:
    pictures = [torch.from_numpy(noise(images_network, (8, 8), n)) for n in range(3)]
    predictor = Predictor(images_network, device="cuda", capture=True)
    for _ in range(3):
        for picture, answer in zip(pictures, predictor(pictures, top=5), strict=True):
            torch.testing.assert_close(
                probabilities(answer), directly(images_network, picture.numpy()), rtol=0, atol=1e-4
            )
