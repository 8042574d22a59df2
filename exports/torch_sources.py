"""Modules that PyTorch lacks, as a file of the format ``torch`` holds them."""

from __future__ import annotations

# Attributes of modules, but for those that begin with ``register_`` or an underscore.
RESERVED = """
add_module append apply bfloat16 body buffers call_super_init children compile cpu cuda double
dump_patches eval extend extra_repr float forward get_buffer get_extra_state get_parameter
get_submodule half insert ipu load_state_dict modules mtia named_buffers named_children
named_modules named_parameters parameters pop requires_grad_ set_extra_state set_submodule
share_memory shortcut state_dict to to_empty train training type way xpu zero_grad T_destination
"""

SOURCES = {
    "Layers": '''
class Layers(nn.Sequential):
    """Modules one after the other, by name."""

    def __init__(self, modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
''',
    "Residual": '''
class Residual(Layers):
    """body(x) + shortcut(x), of modules by name."""

    def __init__(self, body, shortcut):
        super().__init__({**body, **shortcut})
        self.body, self.shortcut = [*body], [*shortcut]

    def way(self, names, x):
        for name in names:
            x = getattr(self, name)(x)
        return x

    def forward(self, x):
        return self.way(self.body, x) + self.way(self.shortcut, x)
''',
    "Concat": '''
class Concat(Layers):
    """What each module makes of x, side by side."""

    def forward(self, x):
        return torch.cat([module(x) for module in self.children()], 1)
''',
    "ConnectedConv2d": '''
class ConnectedConv2d(nn.Conv2d):
    """A convolution whose filters see some of the maps: those where ``seen`` is 1."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.register_buffer("seen", torch.ones(self.weight.shape[:2]))

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.seen[:, :, None, None], self.bias)
''',
    "Function": '''
class Function(nn.Module):
    """A formula without weights."""

    def __init__(self, forward):
        super().__init__()
        self.forward = forward
''',
    "Rbf": '''
class Rbf(nn.Module):
    """Minus the squared distance to each of the centres, which are fixed."""

    def __init__(self, classes, inputs):
        super().__init__()
        self.register_buffer("centres", torch.zeros(classes, inputs))

    def forward(self, x):
        return -(x[:, None] - self.centres).square().sum(2)
''',
    "Subsampling": '''
class Subsampling(nn.Module):
    """A trained factor and offset of each map, of factor times the mean of each window."""

    def __init__(self, channels, kernel_size, stride, factor):
        super().__init__()
        self.window, self.factor = (kernel_size, stride), factor
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        return self.weight * self.factor * F.avg_pool2d(x, *self.window) + self.bias
''',
}
