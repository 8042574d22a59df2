"""A field that is one of several models gives what pydantic's own union would give."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, ClassVar, Literal

import pytest
from dnnstack.configs.schema.base import Model, Typed, TypedModel, problem
from dnnstack.configs.schema.one_of import Models, OneOf, already, one_of
from pydantic import AfterValidator, Field, ValidationError

from ..support.stored import cases


def _even(value: int) -> int:
    if value % 2:
        raise problem("expected an even number", words=("2", "4"))
    if value > 10:
        raise ValueError("large")
    return value


class Small(TypedModel):
    kind: ClassVar[str] = "thing"
    type: Literal["small"] = "small"
    size: Annotated[Annotated[int, Field(ge=0)], AfterValidator(_even)] = 0


class Large(TypedModel):
    kind: ClassVar[str] = "thing"
    type: Literal["large", "huge"]
    name: str


Ours: Any = one_of(already(Small, Large), Typed("thing"))
Theirs = Annotated[Small | Large, Field(discriminator="type")]


class WithOurs(Model):
    one: Ours
    several: tuple[Ours, ...] = ()


class WithTheirs(Model):
    one: Theirs
    several: tuple[Theirs, ...] = ()


RIGHT: list[Any] = [{"type": "small"}, {"type": "huge", "name": "x"}, Small(size=4)]
WRONG: list[Any] = cases(__file__, "wrong")


def errors(model: type[Model], value: Any) -> list[Any]:
    found = []
    for given in ({"one": value}, {"one": {"type": "small"}, "several": (RIGHT[0], value)}):
        with pytest.raises(ValidationError) as caught:
            model.model_validate(given)
        found += [
            {**e, "ctx": str(e.get("ctx") or {})} for e in caught.value.errors(include_url=False)
        ]
    return found


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_errors_are_those_of_a_union(value):
    assert errors(WithOurs, value) == errors(WithTheirs, value)


@pytest.mark.parametrize("value", RIGHT, ids=str)
def test_values_are_those_of_a_union(value):
    given = {"one": value, "several": (value, value)}
    ours, theirs = WithOurs.model_validate(given), WithTheirs.model_validate(given)
    assert ours.one == theirs.one
    assert ours.several == theirs.several
    assert ours.model_dump() == theirs.model_dump()


def test_a_model_is_made_once_and_only_when_it_is_asked_for():
    made: list[str] = []

    def make(kind: str) -> type[Model]:
        made.append(kind)
        return Small

    models = Models[Model]({kind: (lambda kind=kind: make(kind)) for kind in ("a", "b")})
    both = models.with_others(Models({"b": lambda: make("new b"), "c": lambda: make("c")}))
    assert (list(both), len(both), "c" in both, "d" in both) == (["a", "b", "c"], 3, True, False)
    assert made == []
    assert both["a"] is models["a"] is Small
    assert both["b"] is Small
    assert made == ["a", "new b"]


def test_a_config_makes_the_models_that_it_uses():
    # In a process of its own: other tests ask for all models.
    code = (
        "from dnnstack.configs import load_config\n"
        "from dnnstack.configs.schema import declared\n"
        "load_config('lenet.yaml')\n"
        "pending = declared.Model.__subclasses__()\n"
        "while pending:\n"
        "    model = pending.pop()\n"
        "    pending += model.__subclasses__()\n"
        "    if model.__module__ == declared.__name__:\n"
        "        print(model.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert {"Conv2dConfig", "DenseConfig", "SgdConfig"} <= found
    assert not found & {"ResidualConfig", "PreluConfig", "AdamConfig"}
    assert issubclass(Ours, OneOf)
