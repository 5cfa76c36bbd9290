"""Sources as a whole: selections, errors that travel, worker processes."""

import pickle
from pathlib import Path

import pytest
import torch

from arrn.data import BadSample, ImageFolder, Selection, open_dataset
from arrn.errors import ArrnError
from pictures import Samples, write_folder


def test_a_selection_is_a_source() -> None:
    source = open_dataset("sample").test
    assert source is not None
    few = Selection(Selection(source, range(100, 200)), torch.tensor([5, 3, 3]))
    assert len(few) == 3
    assert torch.equal(few.labels, source.labels[[105, 103, 103]])
    assert torch.equal(few.read(1), source.read(103))
    assert (few.where(0), few.size(2)) == (source.where(105), (32, 32))
    assert (few.name, few.split, few.class_names) == ("sample", "test", source.class_names)
    copy = pickle.loads(pickle.dumps(few))
    assert torch.equal(copy.read(0), few.read(0))
    assert len(Selection(source, [])) == 0
    for wrong in ([1000], [-1]):
        with pytest.raises(ArrnError, match="indices must lie in 0 to 999"):
            Selection(source, wrong)


def test_a_bad_sample_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(BadSample("FILE row 3", "it is empty")))
    assert (str(error), error.where, error.reason) == ("FILE row 3: it is empty", "FILE row 3", "it is empty")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking is what this is about
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read(method: str) -> None:
    source = Selection(open_dataset("sample").train, range(0, 5000, 250))
    expected = torch.stack([source.read(index) for index in range(len(source))])
    loader = torch.utils.data.DataLoader(Samples(source), batch_size=8, num_workers=1, multiprocessing_context=method)
    images, labels = map(torch.cat, zip(*loader, strict=True))
    assert torch.equal(images, expected)
    assert torch.equal(labels, source.labels)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_workers_error_names_the_file(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)]})
    (tmp_path / "a" / "1.png").write_bytes(b"")
    loader = torch.utils.data.DataLoader(
        Samples(ImageFolder(tmp_path, "train")), num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match=r"1\.png: it is empty"):  # torch wraps whatever a worker raises
        list(loader)
