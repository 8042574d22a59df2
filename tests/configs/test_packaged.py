"""The configs that ship, how a reference finds a file, and what importing costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import effective_yaml, load_config, packaged_configs, parse_config
from dnnstack.configs.find import packaged_searches
from dnnstack.configs.search import load_search
from dnnstack.configs.stages import load_stages, packaged_stages
from dnnstack.training.assemble import build_network, describe_data

from ..support.stored import cases

PACKAGED = cases(__file__, "packaged")


def test_which_ship():
    assert packaged_configs() == PACKAGED


def test_searches_ship_that_the_package_finds():
    assert packaged_searches() == ["lenet-search.yaml"]
    for name in packaged_searches():
        loaded, search = load_search(name)
        assert loaded.packaged
        assert search.trials is not None
        assert search.trials <= 200


def test_stages_ship_for_both_networks_of_the_paper():
    """And fit them."""
    assert packaged_stages() == ["int8.yaml", "lenet-300-100.yaml", "lenet.yaml"]
    # These suit any network.
    assert load_stages("int8.yaml").config.trainings == ()
    for name in packaged_stages()[1:]:
        stages, network = load_stages(name), load_config(name).config
        assert stages.packaged
        given = [stage.model_dump() for stage in stages.config.stages]
        for stage in given:
            built = parse_config(
                effective_yaml(network),
                "x.yaml",
                [f"{k}={json.dumps(v)}" for k, v in stage.items()],
            )
            build_network(built, describe_data(built))
        assert stages.config.paper is not None
        assert "share" in given[-1]


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_config(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = load_config(name)
    assert loaded.packaged
    assert loaded.path.name == name
    assert loaded.config.name == name.removesuffix(".yaml")
    assert loaded.text.startswith("# yaml-language-server: $schema=schema.json\n")
    assert (loaded.path.parent / "schema.json").exists()
    assert parse_config(effective_yaml(loaded.config), "x.yaml") == loaded.config


def test_mlp_is_the_experiment():
    config = load_config("mlp.yaml").config.model_dump()
    assert config["optimizer"] | {"type": "sgd", "lr": 0.02, "momentum": 0.0} == config["optimizer"]
    assert config["optimizer"]["weight_decay"] == 0
    assert config["schedule"] == {"type": "compounding", "decay": 0.00005}
    assert config["data"]["batch_size"] == 256
    assert config["train"]["max_steps"] == 1600
    names = [next(iter(layer)) if isinstance(layer, dict) else layer for layer in config["layers"]]
    assert names == ["flatten", "dense", "relu", "dense", "softmax"]


def test_a_file_here_comes_before_the_packaged_one(tmp_path, monkeypatch):
    text = load_config("lenet.yaml").text.replace("name: lenet", "").replace("1701", "7")
    (tmp_path / "lenet.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    loaded = load_config("lenet.yaml", ["train.epochs=3"])
    assert not loaded.packaged
    assert (loaded.config.seed, loaded.config.train.epochs) == (7, 3)
    assert loaded.config.name == "lenet"
    assert loaded.path == Path("lenet.yaml")
    assert loaded.text == text


@pytest.mark.parametrize(
    ("stem", "name"), [("my net (2)", "my-net-2"), ("latest", "run"), (".x", "x"), ("é", "run")]
)
def test_the_name_comes_from_the_file(stem, name, tmp_path):
    text = load_config("lenet.yaml").text.replace("name: lenet", "")
    (tmp_path / f"{stem}.yaml").write_text(text)
    assert load_config(tmp_path / f"{stem}.yaml").config.name == name


def failure(reference: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(reference)
    return str(caught.value)


def test_not_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = f"(configs in the package: {', '.join(PACKAGED)})"
    assert failure("wibble.yaml") == f"wibble.yaml: no such file {shipped}"
    assert failure("lenett.yaml") == (
        f"lenett.yaml: no such file; did you mean 'lenet.yaml'? {shipped}"
    )
    assert failure("lenet") == f"lenet: no such file; did you mean 'lenet.yaml'? {shipped}"
    assert failure("./lenet.yaml") == f"./lenet.yaml: no such file {shipped}"
    (tmp_path / "mine.yaml").touch()
    assert "did you mean 'mine.yaml'?" in failure("min.yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.yaml").touch()
    assert "did you mean 'sub/mine.yaml'?" in failure("sub/min.yaml")
    assert failure(tmp_path) == f"{tmp_path}: is a folder; --config needs a YAML file"


def test_not_a_config(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: a\nseed: \xff\n")
    assert failure(path) == f"{path}:2:7: not UTF-8 text; save the file as UTF-8"
    path.write_bytes(b"#" * (2**20 + 1))
    assert failure(path) == f"{path}: larger than 1 MiB, which is too large for a config"
    path.write_bytes(b"#" * 2**20)
    assert failure(path).startswith(f"{path}:1:1: the file is empty")
    path.write_text("seed: x")
    assert failure(path).splitlines()[-1] == f"{path}:1:7: seed: expected a whole number (got 'x')"


def test_importing_the_package_imports_no_pydantic_and_no_yaml():
    code = "import sys, dnnstack.configs; print({'pydantic', 'yaml', 'numpy'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_unknown_name_of_the_package():
    import dnnstack.configs

    with pytest.raises(AttributeError, match="wibble"):
        dnnstack.configs.wibble  # noqa: B018
