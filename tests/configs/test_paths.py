"""Relative folders of data count from the config's file, those in overrides from this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.configs import LoadedConfig, effective_yaml, load_config, parse_config

CONFIG = """\
data:
  dataset: {image_folder: {train: set, test: unseen, size: 8}}
layers: [flatten, {dense: {units: 2}}]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A config with its pictures; the working directory is another folder."""
    for name in ("project/set", "project/unseen", "elsewhere", "project/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project" / "net.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project"


def loaded(*overrides: str) -> LoadedConfig:
    return load_config("../project/net.yaml", overrides)


def test_pictures_are_found_beside_the_config(project):
    config = loaded().config
    assert config.data.root == str(Path.cwd() / "../project")
    assert config.data.dataset.options()["train"] == "set"
    # What a run keeps of it says so too, wherever it is read.
    assert parse_config(effective_yaml(config), "run").data.root == config.data.root


def test_pictures_that_are_not_there_are_left_to_the_data_folder(project):
    (project / "set").rmdir()
    assert loaded().config.data.root is None


def test_the_folder_of_an_override_counts_from_the_working_directory(project):
    Path("mine").mkdir()
    found = loaded("data.dataset.image_folder.train=mine").config.data
    assert found.dataset.options()["train"] == str(Path.cwd() / "mine")
    assert found.root is None
    for key in ("test", "validation"):
        found = loaded(f"data.dataset.image_folder.{key}=mine").config.data
        assert found.dataset.options()[key] == str(Path.cwd() / "mine")
        assert found.root == str(Path.cwd() / "../project")
    assert loaded("data.root=mine").config.data.root == str(Path.cwd() / "mine")


def test_files_of_arrays_are_found_as_folders_are(project):
    (project / "net.yaml").write_text(
        CONFIG.replace("image_folder: {", "npz: {").replace(", size: 8", "")
    )
    assert loaded().config.data.root == str(Path.cwd() / "../project")
    Path("x.npy").touch()
    found = loaded("data.dataset.npz.train=[x.npy, y.npy]").config.data
    assert found.dataset.files["train"] == (str(Path.cwd() / "x.npy"), "y.npy")
    assert found.root is None
    assert loaded("data.dataset.npz.test=x.npy").config.data.dataset.files == {
        "train": ("set",),
        "test": (str(Path.cwd() / "x.npy"),),
    }


def test_a_root_in_the_file_counts_from_the_file(project):
    text = CONFIG.replace("data:\n", "data:\n  root: data\n")
    (project / "net.yaml").write_text(text)
    assert loaded().config.data.root == str(Path.cwd() / "../project/data")
    assert loaded().names_data_folder
    # One that is to be made, too; but not one that an earlier run counted from this folder.
    (project / "data").rmdir()
    assert loaded().config.data.root == str(Path.cwd() / "../project/data")
    Path("data").mkdir()
    assert loaded().config.data.root == "data"
    (project / "net.yaml").write_text(CONFIG.replace("data:\n", "data:\n  root: ~/data\n"))
    assert loaded().config.data.root == "~/data"


def test_a_folder_whose_name_no_config_can_hold_is_not_written(project, monkeypatch):
    project = project.rename(project.with_name("pro\nject"))
    config = load_config(project / "net.yaml").config
    assert config.data.root is None
    monkeypatch.chdir(project)
    assert load_config("net.yaml").config.data.root is None


def test_a_config_of_the_package_has_no_folder(project):
    assert load_config("lenet.yaml").config.data.root is None
    relative = load_config("lenet.yaml", ["data.root=gone"]).config.data.root
    assert relative == str(Path.cwd() / "gone")


def test_a_name_that_is_too_long_is_no_folder(project):
    (project / "net.yaml").write_text(CONFIG.replace("train: set", f"train: {'x' * 5000}"))
    assert loaded().config.data.root is None
