"""Drawings as SVG: elements, and the text of a whole picture."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ..common.printable import printable_lines

NAMESPACE = "http://www.w3.org/2000/svg"


def picture(width: float, height: float, title: str) -> Element:
    """An empty picture of ``width`` x ``height`` pixels, which scales; ``title`` is read aloud."""
    box = f"0 0 {_written(width)} {_written(height)}"
    found = Element("svg", {"viewBox": box, "role": "img", "font-family": "sans-serif"})
    found.set("width", _written(width))
    found.set("height", _written(height))
    add(found, "title", title)
    return found


def add(parent: Element, tag: str, text: str | None = None, **attributes: str | float) -> Element:
    """Append ``<tag>text</tag>``; ``font_size=9`` is ``font-size="9"``, ``class_`` is ``class``."""
    found = ElementTree.SubElement(parent, tag)
    found.text = text and printable_lines(text)
    for name, value in attributes.items():
        found.set(name.rstrip("_").replace("_", "-"), _written(value))
    return found


def written(drawn: Element) -> str:
    """The text of the picture, as a file or within a page."""
    drawn.set("xmlns", NAMESPACE)
    return ElementTree.tostring(drawn, encoding="unicode")


def _written(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
