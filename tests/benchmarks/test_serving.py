"""What a server is loaded with, and the program that is loaded."""

from pathlib import Path

import pytest

import arrn
from arrn.benchmarks.serving import load_samples, serving_program
from servers import Brightness


def test_samples_are_of_the_sizes_asked_for_and_some_are_corrupt() -> None:
    network = Brightness()
    samples = load_samples(40, lambda content: network.read(content).size, least=4, most=64, corrupt=10)
    sizes = [sample.right for sample in samples if sample.right is not None]
    assert len(sizes) == 36
    assert all(4 <= side <= 64 for size in sizes for side in size)
    assert min(map(min, sizes)) < 8
    assert max(map(max, sizes)) > 32
    assert {sample.kind for sample in samples} == {"image/png", "image/jpeg"}
    for sample in samples:
        if sample.right is None:
            with pytest.raises(arrn.ArrnError):
                network.read(sample.content)


def test_a_program_that_does_not_start_is_told(tmp_path: Path) -> None:
    expected = pytest.raises(arrn.ArrnError, match=r"arrn serve did not start: arrn: .*is not a directory")
    with expected, serving_program(tmp_path / "none"):
        pass
