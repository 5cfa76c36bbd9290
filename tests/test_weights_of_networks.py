"""Tensors in a file: under their own names, shared ones and views among them, each with its dtype."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import arrn
from arrn.models.registry import _builders
from arrn.nn import ARRN
from saved_networks import Plain, edit, small


@pytest.mark.filterwarnings("ignore")  # of torch, about what its wrappers do without a GPU
def test_what_is_wrapped_around_a_network_is_not_saved(tmp_path: Path) -> None:
    model = small().eval()
    x = torch.randn(2, 3, 8, 8)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = {
            "compiled": torch.compile(model),
            "parallel": nn.DataParallel(model),
            "distributed": nn.parallel.DistributedDataParallel(model),
            "both": torch.compile(nn.parallel.DistributedDataParallel(model)),
        }
        for name, wrapper in wrapped.items():
            arrn.save(wrapper, tmp_path / name)
    finally:
        torch.distributed.destroy_process_group()
    model.cpu()  # DataParallel put it on a GPU, if there is one
    for name in wrapped:
        assert torch.equal(arrn.load(tmp_path / name)(x), model(x))


def test_a_compiled_part_is_saved_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small().eval()
    x = torch.randn(2, 3, 8, 8)
    expected = model(x)
    names = set(model.state_dict())
    model.base = torch.compile(model.base)
    arrn.save(model, tmp_path)
    assert set(safetensors.torch.load_file(tmp_path / "model.safetensors")) == names
    assert torch.equal(arrn.load(tmp_path)(x), expected)
    # Files from before names were cleaned, and builders that compile, may have the compiler's name on either side.
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    edit(tmp_path, weights_sha256=None)  # nor had they a checksum
    assert torch.equal(arrn.load(tmp_path)(x), expected)
    monkeypatch.setitem(_builders, "compiled", lambda: torch.compile(Plain()))
    compiled = arrn.create_model("compiled")
    arrn.save(compiled, tmp_path)
    assert torch.equal(arrn.load(tmp_path).classifier.weight, compiled.classifier.weight)


def test_a_shared_layer_is_saved_and_stays_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_builders, "own", lambda size=32: arrn.transplant(Plain(3, shared=True), size))
    model = arrn.create_model("own").bfloat16().eval()
    assert len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False)))
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path, dtype="saved")
    x = torch.randn(2, 3, 32, 32).bfloat16()
    assert torch.equal(loaded(x), model(x))
    assert len(list(loaded.parameters())) == len(list(model.parameters()))
    assert torch.isfinite(arrn.create_model("own", pretrained=tmp_path)(x.float())).all()


def test_views_of_one_memory_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> nn.Module:
        model, flat = nn.Linear(3, 3), torch.randn(15)
        model.weight.data, model.bias.data = flat[:9].view(3, 3), flat[8:11]
        return model

    monkeypatch.setitem(_builders, "own", build)
    model = arrn.create_model("own")
    arrn.save(model, tmp_path)
    assert torch.equal(arrn.load(tmp_path).weight, model.weight)


def test_channels_last_and_dtype_survive(tmp_path: Path) -> None:
    model = small().to(torch.bfloat16).to(memory_format=torch.channels_last)
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path, dtype="saved")
    assert loaded.stem.weight.dtype == torch.bfloat16
    assert torch.equal(loaded.base.block.expand.weight, model.base.block.expand.weight)


def narrow_but_for_norms(model: nn.Module) -> nn.Module:
    model.bfloat16()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    return model.eval()


def dtypes(model: nn.Module) -> dict[str, torch.dtype]:
    return {name: tensor.dtype for name, tensor in model.state_dict().items()} | {
        name: buffer.dtype for name, buffer in model.named_buffers()
    }


def test_every_dtype_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 3, 8, 8).bfloat16()
    model = narrow_but_for_norms(small())
    assert set(dtypes(model).values()) == {torch.bfloat16, torch.float32, torch.int64}

    def norm_first() -> ARRN:  # so that the first parameter is not in the dtype of most others
        network = small()
        network.residuals[0].block = nn.Sequential(nn.BatchNorm2d(4), network.residuals[0].block)
        return network

    monkeypatch.setitem(_builders, "norm_first", norm_first)
    for mixed in (model, narrow_but_for_norms(arrn.create_model("norm_first"))):
        arrn.save(mixed, tmp_path)
        assert set(dtypes(arrn.load(tmp_path)).values()) == {torch.float32, torch.int64}
        loaded = arrn.load(tmp_path, dtype="saved")
        assert dtypes(loaded) == dtypes(mixed)
        assert torch.equal(loaded(x), mixed(x))
        pretrained = arrn.create_model(mixed.config["name"], pretrained=tmp_path)
        assert set(dtypes(pretrained).values()) == {torch.float32, torch.int64}


def test_half_precision_is_loaded_as_float32_unless_asked(tmp_path: Path) -> None:
    model = small().eval()
    x = torch.randn(2, 3, 8, 8)
    arrn.save(model.half(), tmp_path)
    loaded = arrn.load(tmp_path)
    assert set(dtypes(loaded).values()) == {torch.float32, torch.int64}
    torch.testing.assert_close(loaded(x), model.float()(x))  # in float32, and the smoothing as good as new
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert set(dtypes(arrn.load(tmp_path, dtype=dtype)).values()) == {dtype, torch.int64}
    assert torch.equal(arrn.load(tmp_path, dtype=torch.float64)(x.double()), arrn.load(tmp_path).double()(x.double()))
    arrn.save(small().double(), tmp_path)
    assert set(dtypes(arrn.load(tmp_path)).values()) == {torch.float64, torch.int64}  # nothing is lost unasked
    for wrong in (torch.int8, torch.complex64, "float16"):
        with pytest.raises(arrn.ArrnError, match=r"dtype must be a dtype for real numbers, such as torch\.float32"):
            arrn.load(tmp_path, dtype=wrong)


def test_shipped_weights_answer_the_obvious_call() -> None:
    model = arrn.load(Path(__file__).parents[1] / "weights" / "arrn_small")
    assert model(model.metadata.normalise(torch.rand(2, 3, 16, 16))).shape == (2, 10)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.linear = nn.Linear(3, 3)


@pytest.mark.parametrize("builder", [Complex, nn.Identity])
def test_networks_whose_first_parameter_is_no_real_number_or_missing(
    builder: type[nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_builders, "own", lambda: builder())
    model = arrn.create_model("own")
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path)
    assert dtypes(loaded) == dtypes(model)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in loaded.state_dict().items())
