"""`arrn benchmark data`: what is copied, measured, told and refused; never the times."""

import json
import mmap
import os
from pathlib import Path

import pytest

from arrn.benchmarks import Measurement
from arrn.benchmarks.streaming import repeat_shards, training_shards
from arrn.cli.benchmark_tables import data_table
from arrn.errors import ArrnError
from arrn.memory import children_of, process_memory
from arrn.timing import Timing
from commands import Command
from pictures import write_folder
from shards import write_shards

linux = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system is not Linux")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "photos", "parquet", (9, 8), ((6, 6), (6, 6), (5, 6)))


def test_each_way_is_measured_and_shown(arrn_command: Command, root: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "data.json"
    command = ["benchmark", "data", "--data", root, "--gigabytes", "0.00002", "--workers", 0, "--quick"]
    out = arrn_command(*command, "--device", "cpu", "--json", numbers).out
    measured = [Measurement.read(entry) for entry in json.loads(numbers.read_text())["measurements"]]
    assert [each.way for each in measured] == ["decoding alone", "streamed", "in memory"]
    assert {each.case for each in measured} == {"2e-05 GB of photos"}
    assert all(each.time is not None and each.faster is not None for each in measured)
    streamed = measured[1].facts
    assert streamed["samples"] > 17  # more than one copy
    if Path("/proc/self/smaps_rollup").exists():
        assert 0 < streamed["main_memory"] <= streamed["main_memory_peak"]
        assert streamed["worker_memory"] == 0
        assert streamed["all_memory"] > 0
    for text in ("2e-05 GB of photos", "of decoding", "streamed", "in memory"):
        assert text in out
    assert "streamed" in arrn_command("benchmark", "--load", numbers).out


def test_shards_are_copied_in_turn_until_there_are_enough(root: Path, tmp_path: Path) -> None:
    shards = training_shards(root)
    copies = tmp_path / "copies"
    copies.mkdir()
    size = sum(shard.size for shard in shards)
    assert repeat_shards(shards, copies, 1) == 1
    assert repeat_shards(shards, copies, 1.5 * size) == 3  # the first stays
    found = sorted(copies.iterdir())
    assert [file.name for file in found] == [f"train-{n:06d}.parquet" for n in range(3)]
    assert [file.stat().st_size for file in found] == [shards[n % 2].size for n in range(3)]


def test_what_cannot_be_measured_is_refused(
    arrn_command: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*options: object) -> str:
        return arrn_command("benchmark", "data", "--device", "cpu", *options, code=2).err

    assert "give --data FOLDER" in refused()
    write_folder(tmp_path / "folders", {"cat": [(4, 4)], "dog": [(4, 4)]})
    assert "holds no training shards, files such as train-00000.parquet" in refused("--data", tmp_path / "folders")
    for wrong in ("0", "2,x", "-1", "1e9"):
        assert "--gigabytes " in refused("--data", root, "--gigabytes", wrong)
    assert "--workers must be 0 to 1,000, got -1" in refused("--data", root, "--workers", -1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: Free())
    assert "has 1e-06 GB of disk free, and the copies take 2.0 GB" in refused("--data", root)
    with pytest.raises(ArrnError, match="set TMPDIR to a folder on a larger disk"):
        repeat_shards(training_shards(root), tmp_path, 1e6)


class Free:
    free = 1000


def test_the_table_says_how_much_of_the_floor_is_reached() -> None:
    facts = {"samples_a_second": 800.0, "opening": 1.0, "looking": 2.0, "main_memory_peak": 10**9}
    rows = [
        Measurement("data", "2 GB", "decoding alone", Timing(1e-3, 1e-3, 1e-3), faster=1.0),
        Measurement("data", "2 GB", "streamed", Timing(1.25e-3, 1.2e-3, 1.3e-3), faster=0.8, facts=facts),
    ]
    cells = [list(column.cells) for column in data_table(rows).columns]
    assert [column[1] for column in cells][2:] == ["800", "8%", "0.80", "3 s", "1,000 MB", "", ""]


@linux
def test_the_memory_of_a_process() -> None:
    mine = process_memory(os.getpid())
    assert mine is not None
    with mmap.mmap(-1, 2**26) as held:  # pages of its own: memory that the process has freed does not serve
        held.write(os.urandom(2**26))
        more = process_memory(os.getpid())
    assert more is not None
    assert more.resident - mine.resident > 2**25
    assert process_memory(2**30) is None
    assert children_of(2**30) == []
