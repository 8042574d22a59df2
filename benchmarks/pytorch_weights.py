"""Whether weights of torchvision and timm give the same scores here, and go back unchanged.

    python3 benchmarks/pytorch_weights.py

Needs PyTorch, torchvision and timm. Nothing is downloaded: weights and statistics are drawn at
random. Each model is saved as safetensors, read as `dnnstack train --init-from` does, and both
score a picture of random numbers. Then the weights are written as `dnnstack weights --save` does,
and loaded into the model again, strictly. Prints a row of docs/testing.md for each model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from dnnstack.backends.base import Options
from dnnstack.backends.select import open_backend
from dnnstack.configs import load_config
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.weights.export import save_weights
from dnnstack.training.weights.source import Offered, Source, open_source
from dnnstack.training.weights.start import begin
from safetensors.torch import load_file, save_file

MODELS: tuple[tuple[str, Any, str, int], ...] = (
    ("torchvision `resnet18`", torchvision.models.resnet18, "resnet18.yaml", 224),
    ("torchvision `resnet18`", torchvision.models.resnet18, "resnet18.yaml", 64),
    ("torchvision `vgg16`", torchvision.models.vgg16, "vgg16.yaml", 224),
    ("timm `resnet18`", lambda: timm.create_model("resnet18"), "resnet18.yaml", 224),
    ("timm `vgg16`", lambda: timm.create_model("vgg16"), "vgg16.yaml", 224),
)


def compared(name: str, make: Any, config: str, size: int, folder: Path) -> str:
    model = make().eval()
    for key, each in model.state_dict().items():
        if key.endswith("running_mean"):
            each.normal_(0.0, 0.1)
        elif key.endswith("running_var"):
            each.uniform_(0.5, 1.5)
    path = folder / "model.safetensors"
    save_file({key: each.contiguous() for key, each in model.state_dict().items()}, str(path))
    loaded = load_config(config, [f"data.dataset.image_folder.size={size}"]).config
    network = build_network(loaded, describe_data(loaded))
    shapes = {tensor.name: tensor.shape for tensor in network.learned()}
    start = begin(open_source(str(path), folder, print), shapes, ())
    assert not start.new
    assert not start.left
    graph = network.infer_graph(1)
    executable = open_backend("cpu", 1, print).compile({"infer": graph}, Options(tune=False))
    for tensor in network.learned():
        executable.write(tensor, start.values[tensor.name])
    x = torch.randn(1, 3, size, size)
    executable.write(graph["x"], x.numpy())
    executable.run("infer")
    ours = executable.read(graph["scores"])
    executable.close()
    with torch.no_grad():
        theirs = model(x).numpy()
    offered = {
        key: Offered(each.shape, "F32", lambda each=each: each)
        for key, each in start.values.items()
    }
    saved = folder / "back.safetensors"
    save_weights(Source(path, "0" * 64, "dnnstack", offered), saved)
    back = "not tried: `--save` writes torchvision's names"
    if "timm `vgg16`" not in name:
        model.load_state_dict(load_file(str(saved)))
        with torch.no_grad():
            same = bool((model(x).numpy() == theirs).all())
        back = f"loads strictly, {'same' if same else 'OTHER'} scores"
    largest, difference = abs(theirs).max(), abs(ours - theirs).max()
    return (
        f"| {name}, {size} pixels | {len(start.values)} | {largest:.2g} | {difference:.1e} "
        f"| {back} |"
    )


def main() -> None:
    torch.manual_seed(1)
    print(
        f"torch {torch.__version__}, torchvision {torchvision.__version__}, timm {timm.__version__}"
    )
    for name, make, config, size in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            print(compared(name, make, config, size, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
