"""Weights of a hub: downloaded once and pinned; a hub that errs or lies gives one line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import CheckpointError, Interrupted
from dnnstack.common.files import sha256_bytes
from dnnstack.datasets import Downloads
from dnnstack.training.weights import hub
from dnnstack.training.weights.hub import TORCHVISION, from_hub, names_model, pretrained_beside
from dnnstack.training.weights.source import open_source

from ...cli.conftest import TINY
from ...support.https_server import CERTIFICATE, nothing_for, serving
from .files import written

COMMIT = "c" * 40
CARD = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.1], "input_size": [3, 224, 192]}


@dataclass
class Hub:
    """A hub and the host that it redirects to, on loopback; ``asked``: what came, with tokens."""

    content: bytes
    sent: bytes = b""
    cut: int | None = None
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    store: str = ""

    def answer(self, request):
        self.asked.append((request.command, request.path, request.headers["Authorization"]))
        if self.refusals:
            status, headers = self.refusals.pop(0)
            request.give(status, b"<html>log in</html>", **headers)
        elif request.path.endswith("/config.json"):
            request.give(200, json.dumps({"pretrained_cfg": CARD}).encode())
        elif request.path.startswith("/store"):
            request.give_range(self.sent, None if request.begins_at() else self.cut)
        else:
            said = {"X_Repo_Commit": COMMIT, "X_Linked_Etag": f'"{sha256_bytes(self.content)}"'}
            said |= {"X_Linked_Size": str(len(self.content)), "Location": f"{self.store}store"}
            request.give(302, **said | self.headers)


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A hub with a model whose only array is ``w``."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.chdir(tmp_path)
    data = written(tmp_path / "x.safetensors", w=np.arange(9000.0)).read_bytes()
    made = Hub(data, data)
    with serving(made.answer) as server, serving(made.answer) as store:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        made.store = store.url
        yield made


def get(reference="org/model", offline=False, timeout=10.0):
    return from_hub(reference, Downloads(offline=offline, timeout=timeout))


def refused(*arguments, **options):
    with pytest.raises(CheckpointError) as caught:
        get(*arguments, **options)
    assert "hf_secret" not in str(caught.value)
    return str(caught.value)


def test_a_model_is_downloaded_once_and_then_needs_no_network(there, tmp_path, monkeypatch):
    path = get()
    folder = tmp_path / "cache" / "weights" / "org" / "model"
    assert path == folder / COMMIT / "model.safetensors"
    digest = sha256_bytes(there.content)
    pin = {"commit": COMMIT, "sha256": digest, "bytes": len(there.content)}
    assert json.loads((folder / "pin.json").read_text()) == pin
    token, at = "Bearer hf_secret", f"/org/model/resolve/{COMMIT}"
    assert there.asked == [
        ("HEAD", "/org/model/resolve/main/model.safetensors", token),
        ("GET", f"{at}/model.safetensors", token),
        ("GET", "/store", None),
        ("GET", f"{at}/config.json", token),
    ]
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    monkeypatch.setenv("HF_ENDPOINT", "https://localhost:1")
    found = open_source("org/model", tmp_path / "runs", print, Downloads(offline=True))
    assert (found.sha256, found.side, list(found.arrays)) == (digest, 192, ["w"])
    mean, std = found.preprocessing.mean_and_std()
    np.testing.assert_allclose((mean, std), (CARD["mean"], CARD["std"]))
    assert len(there.asked) == 4


def test_a_cut_connection_is_continued(there):
    there.cut = 1000
    assert get().read_bytes() == there.content
    assert [path for _, path, _ in there.asked].count("/store") == 2


@pytest.mark.parametrize(
    ("refusals", "said"),
    [
        ([(404, {})], "answers 404 Not Found; check the name"),
        ([(401, {})], "answers 401 Unauthorized; check the name and the network; a model that is"),
        ([(200, {})], "does not answer as a hub does; check"),
        ([(503, {}), (429, {}), (503, {})], "answers 503 Service Unavailable; check"),
    ],
)
def test_a_hub_that_refuses(there, refusals, said):
    there.refusals = [(status, {"Retry_After": "0"}) for status, _ in refusals]
    assert f"/org/model/resolve/main/model.safetensors {said}" in refused()
    assert len(there.asked) == len(refusals)
    assert get().exists()


def test_a_busy_hub_is_asked_again(there):
    there.refusals = [(429, {"Retry_After": "0"}), (503, {"Retry_After": "0"})]
    assert get().exists()
    assert [method for method, _, _ in there.asked[:4]] == ["HEAD", "HEAD", "HEAD", "GET"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Repo_Commit": "../../x"},
        {"X_Linked_Etag": '"' + "a" * 40 + '"'},
        {"X_Linked_Size": "many"},
    ],
)
def test_what_no_hub_says_is_refused(there, headers):
    there.headers = headers
    assert "does not answer as a hub does" in refused()


def test_other_bytes_than_promised_never_count(there, tmp_path):
    there.sent = there.content[:-1] + b"x"
    said = refused()
    assert "has a different file of this name (wrong SHA-256)" in said
    assert not list((tmp_path / "cache").rglob("*.json"))
    there.headers = {"X_Linked_Size": str(1 << 60)}
    assert "org/model: has 1,152,921,504,606,846,976 bytes, more than this" in refused()


def test_what_is_pinned_stays(there):
    path = get()
    pin = path.parents[1] / "pin.json"
    path.write_bytes(b"x")
    digest = sha256_bytes(there.content)
    assert refused() == (
        f"{path}: is not the file that was pinned, of SHA-256 {digest}; remove it, and it is "
        "downloaded anew"
    )
    path.unlink()
    there.sent = b"what the hub has now"
    assert refused().endswith(f"remove {pin}, which says what it was.")
    for text in ("{", json.dumps({"commit": "..", "sha256": digest, "bytes": 1})):
        pin.write_text(text)
        assert refused().startswith(f"{pin}: is damaged: ")


def test_without_a_network(there, monkeypatch):
    said = refused("torchvision/resnet18", offline=True)
    assert said.startswith("torchvision/resnet18: no such file or run, and ")
    assert "timm/resnet18.tv_in1k has no weights" in said
    assert there.asked == []
    monkeypatch.setenv("HF_ENDPOINT", "https://localhost:1")
    assert "model.safetensors cannot be reached: Connection refused; check the name" in refused()
    monkeypatch.setenv("HF_ENDPOINT", "http://localhost:1")
    assert refused() == "HF_ENDPOINT: expected https://HOST (got 'http://localhost:1')"
    with serving(nothing_for(30)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", silent.url)
        assert "no answer within 0.2 s" in refused(timeout=0.2)
        monkeypatch.setenv("HF_TOKEN", "hf_secret\nX: y")
        assert refused() == "HF_TOKEN: has characters that no token has; set it anew"


def test_what_is_here_is_not_looked_up(there, tmp_path):
    (tmp_path / "org" / "model").mkdir(parents=True)
    for name in ("org/model", "runs/lenet", "w/x.safetensors", "a/b/c", "lenet", "./org/x"):
        with pytest.raises(CheckpointError, match=r"no such (file or )?run"):
            open_source(name, tmp_path / "runs", print, Downloads(offline=False))
    assert there.asked == []
    assert TORCHVISION["torchvision/vgg16_bn"] == "timm/vgg16_bn.tv_in1k"
    assert all(map(names_model, TORCHVISION))


def test_a_training_asks_no_hub_if_it_may_not(there, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DNNSTACK_OFFLINE", "0")
    (tmp_path / "tiny.yaml").write_text(TINY)
    line = ["train", "--config", "tiny.yaml", "--device", "numpy", "--init-from", "org/model"]
    assert main([*line, "--offline"]) == 1
    assert "downloads are switched off" in capsys.readouterr().err
    assert there.asked == []
    assert main(line) == 1
    assert "model.safetensors: nothing in it fits the network" in capsys.readouterr().err


def test_a_download_can_be_interrupted(there, monkeypatch, tmp_path):
    given = ("org/model", tmp_path, print, Downloads(offline=False), lambda: True)
    with serving(nothing_for(30)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", silent.url)
        with pytest.raises(Interrupted):
            open_source(*given)


@pytest.mark.parametrize("wrong", [{"std": [1, 1, 0]}, {"mean": [0.5]}, {"input_size": [3]}, {}])
def test_a_card_that_says_nothing(tmp_path, wrong):
    text = json.dumps({"pretrained_cfg": CARD | wrong} if wrong else {"architecture": "resnet18"})
    (tmp_path / hub._CARD).write_text(text)
    assert pretrained_beside(tmp_path / "x.safetensors") is None
