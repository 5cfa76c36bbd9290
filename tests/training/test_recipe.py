"""Recipes: the paper's numbers, files, overrides, and whatever else a file may hold."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrn.errors import ArrnError
from arrn.training import PAPER_CIFAR, PAPER_LARGER_IMAGES, Recipe, read_recipe, recipe_for

numbers = st.floats(0, 10, exclude_min=True)
shares = st.floats(0, 1, exclude_max=True)
tables = st.dictionaries(st.integers(1, 512), st.integers(1, 20), max_size=5).map(
    lambda counts: tuple((n, count / sum(counts.values())) for n, count in counts.items())
)
recipes = st.builds(
    Recipe,
    epochs=st.integers(1, 10**6),
    batch_size=st.integers(1, 10**6),
    optimizer=st.sampled_from(["adamw", "sgd"]),
    learning_rate=numbers,
    final_learning_rate=st.floats(0, 1),
    betas=st.tuples(shares, shares),
    momentum=shares,
    weight_decay=st.floats(0, 1),
    flip=st.booleans(),
    crop_padding=shares,
    trivial_augment=st.booleans(),
    resolutions=st.lists(st.integers(1, 512), max_size=4).map(tuple),
    policy=st.sampled_from(["exact", "cheap"]),
    precision=st.sampled_from(["auto", "float32", "bfloat16"]),
    label_smoothing=shares,
    weight_averaging=shares,
    cutout=shares,
    cutmix=st.floats(0, 1),
    cutmix_from=st.just(1),
    views=st.integers(2, 4),
    distillation=st.floats(0, 1),
    warm_up=shares,
    nesterov=st.booleans(),
    shares=st.just(((32, 0.25), (8, 0.75))) | tables.filter(bool),
    final_shares=tables,
    shares_change_at=st.floats(0, 1, exclude_min=True, exclude_max=True),
)


def test_the_papers_recipe_for_cifar_number_by_number() -> None:
    assert dataclasses.asdict(PAPER_CIFAR) == {
        "epochs": 100,
        "batch_size": 128,
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "final_learning_rate": 1e-5,
        "betas": (0.9, 0.999),
        "momentum": 0.9,
        "weight_decay": 1e-3,
        "flip": True,
        "crop_padding": 4 / 32,
        "trivial_augment": False,
        "resolutions": (),
        "policy": "exact",
        "precision": "auto",
        "label_smoothing": 0.0,
        "weight_averaging": 0.0,
        "cutout": 0.0,
        "cutmix": 0.0,
        "cutmix_from": 1,
        "views": 1,
        "distillation": 0.0,
        "warm_up": 0.0,
        "nesterov": False,
        "shares": (),
        "final_shares": (),
        "shares_change_at": 0.5,
    }
    assert recipe_for("cifar10") == recipe_for("cifar100") == recipe_for("sample") == PAPER_CIFAR


def test_the_papers_recipe_for_larger_images() -> None:
    assert PAPER_LARGER_IMAGES.policy == "cheap"
    # Our designs for them meet sizes between their grids in training.
    ours = PAPER_LARGER_IMAGES.with_options({"policy": "exact"})
    assert recipe_for("tinyimagenet") == recipe_for("stl10") == recipe_for("imagenette224") == ours
    assert PAPER_LARGER_IMAGES.optimizer == "sgd"
    assert (PAPER_LARGER_IMAGES.learning_rate, PAPER_LARGER_IMAGES.weight_decay) == (1e-2, 1e-3)
    assert (PAPER_LARGER_IMAGES.epochs, PAPER_LARGER_IMAGES.batch_size) == (100, 128)
    assert PAPER_LARGER_IMAGES.trivial_augment
    assert (PAPER_LARGER_IMAGES.flip, PAPER_LARGER_IMAGES.crop_padding) == (False, 0.0)


@given(recipes)
def test_a_recipe_comes_back_from_its_file_as_it_was(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> None:
    path = tmp_path_factory.getbasetemp() / "recipe.toml"
    path.write_text(recipe.to_toml())
    assert read_recipe(path) == recipe
    assert read_recipe(path, start=PAPER_LARGER_IMAGES) == recipe


def test_a_file_overrides_only_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('epochs = 3\noptimizer = "sgd"\nresolutions = [32, 16]\n')
    assert read_recipe(path, PAPER_LARGER_IMAGES) == dataclasses.replace(
        PAPER_LARGER_IMAGES, epochs=3, optimizer="sgd", resolutions=(32, 16)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "unknown option of a recipe: 'epoch'; did you mean 'epochs'"),
        ("[training]\nepochs = 3", "unknown option of a recipe: 'training'"),
        ("epochs = 0", "epochs must be a whole number from 1 to 1000000, got 0"),
        ("epochs = 1.5", "epochs must be a whole number"),
        ("epochs = true", "epochs must be a whole number"),
        ("learning_rate = 0.0", "learning_rate must be a number above 0"),
        ("learning_rate = nan", "learning_rate must be a number above 0"),
        ("learning_rate = inf", "learning_rate must be a number above 0"),
        ("weight_decay = -1", "weight_decay must be a number of at least 0"),
        ("betas = [0.9]", "betas must be two numbers"),
        ("betas = 0.9", "betas must be two numbers"),
        ("betas = [0.9, 1.0]", "betas must be two numbers"),
        ("momentum = 1", "momentum must be a number in"),
        ("momentum = [0.5]", "momentum must be a number in"),
        ("resolutions = [0]", "resolutions must be a list of whole numbers"),
        ("resolutions = 8.5", "resolutions must be a list of whole numbers"),
        ('flip = "yes"', "flip must be true or false"),
        ("trivial_augment = 1", "trivial_augment must be true or false, got 1"),
        ('optimizer = "adam"', "optimizer must be 'adamw' or 'sgd', got 'adam'"),
        ("policy = 2020-01-01", "policy must be 'exact' or 'cheap'"),
        ("epochs = 10000000000000000000000000000", "is not valid TOML: a whole number of 94 bits"),
        ("epochs = 9223372036854775807", "epochs must be a whole number from 1 to 1000000, got 9223372036854"),
        ("batch_size = 1000001", "batch_size must be a whole number from 1 to 1000000"),
        ("resolutions = [9223372036854775807]", "resolutions must be a list of whole numbers from 1 to"),
        ("resolutions = [" + "8," * 100 + "]", "resolutions must be a list of whole numbers"),
        ("label_smoothing = 1.0", "label_smoothing must be a number in [0, 1)"),
        ("weight_averaging = 1", "weight_averaging must be a number in [0, 1)"),
        ("cutout = -0.1", "cutout must be a number in [0, 1)"),
        ("cutmix = 1.1", "cutmix must be a number in [0, 1], got 1.1"),
        ("distillation = 0.5", "distillation=0.5 needs views of 2 or more"),
        ("distillation = 2", "distillation must be a number in [0, 1], got 2"),
        (
            "distillation = 0.5\nviews = 2\ncutmix = 0.5\ncutmix_from = 8\nshares = {8 = 1.0}",
            "takes all views alike, so cutmix_from must be 1, got 8",
        ),
        ("views = 0", "views must be a whole number from 1 to 64, got 0"),
        ("cutmix_from = 16", "cutmix_from=16 needs shares or resolutions"),
        ("nesterov = 1", "nesterov must be true or false"),
        ("epochs = 3\nwarm_up = 3", "warm_up must be less than epochs, which is 3, got 3"),
        ("shares = {32 = 0.5, 16 = 0.4}", "shares must add up to 1, got 0.9 in {32: 0.5, 16: 0.4}"),
        ("shares = {32 = 0.5, 032 = 0.5}", "shares must name each resolution once"),
        ("shares = {32 = 1.5}", "shares must be a table of resolutions and their shares"),
        ("shares = {top = 1.0}", "shares must be a table of resolutions and their shares"),
        ("shares = 0.5", "shares must be a table of resolutions and their shares"),
        ("shares = [32, 16]", "shares must be a table of resolutions and their shares"),
        ("final_shares = {32 = 1.0}", "final_shares replace shares late in training, but this recipe has no shares"),
        ("shares_change_at = 1.0", "shares_change_at must be a number between 0 and 1"),
        ("epochs == 3", "is not valid TOML"),
        ("epochs = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_a_wrong_recipe_is_refused_with_its_file_and_what_would_be_right(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ArrnError) as caught:
        read_recipe(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "given", [{"16": 0.25, "32": 0.75}, {16: 0.25, 32: 0.75}, [[16, 0.25], [32, 0.75]], ((32, 0.75), (16, 0.25))]
)
def test_shares_are_the_same_from_toml_from_json_and_from_python(given: Any) -> None:
    recipe = PAPER_CIFAR.with_options({"shares": given})
    assert recipe.shares == ((32, 0.75), (16, 0.25))
    assert hash(recipe) == hash(Recipe(shares=((32, 0.75), (16, 0.25))))
    assert "shares = {32 = 0.75, 16 = 0.25}\n" in recipe.to_toml()


def test_a_recipe_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_recipe(Path("frontier"), PAPER_LARGER_IMAGES).views == 2
    (tmp_path / "frontier").write_text("epochs = 3")
    assert read_recipe(Path("frontier")).epochs == 3  # a file of that name is what was meant
    with pytest.raises(ArrnError, match=r"cannot read the recipe frontiere: .* by name there are paper_cifar"):
        read_recipe(Path("frontiere"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ArrnError, match="cannot read the recipe"):
            read_recipe(path)


toml_like = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(
        st.tuples(
            st.sampled_from([field.name for field in dataclasses.fields(Recipe)]),
            st.sampled_from(
                ["1", "-1", "1e400", "nan", '"adamw"', "[]", "[1,2]", "[[8]]", "{a=1}", "true", "07:32:00"]
            ),
        ),
        max_size=4,
    ).map(lambda pairs: "\n".join(f"{name} = {value}" for name, value in pairs).encode()),
)


@given(toml_like)
def test_no_file_escapes_as_anything_but_an_arrn_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(content)
    try:
        recipe = read_recipe(path)
    except ArrnError:
        return
    assert tomllib.loads(recipe.to_toml())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(Recipe)]) | st.text(max_size=8), values))
def test_no_options_escape_as_anything_but_an_arrn_error(options: dict[str, Any]) -> None:
    try:
        recipe = PAPER_CIFAR.with_options(options)
    except ArrnError:
        return
    assert all(getattr(recipe, name) is not None for name in options)


def test_the_documented_recipe_is_the_default_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    documented = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
    assert set(documented) == {option.name for option in dataclasses.fields(Recipe)}
    assert Recipe().with_options(documented) == Recipe()
