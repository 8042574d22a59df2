from __future__ import annotations

from xml.etree import ElementTree

from dnnstack.reports import svg


def test_a_picture_is_xml_with_its_names_escaped():
    drawn = svg.picture(200.5, 1234567, "<script>")
    svg.add(drawn, "text", "a & b", x=1.234, y=-0.5, font_size=9, class_="name")
    text = svg.written(drawn)
    root = ElementTree.fromstring(text)
    child = root[1]
    assert root.get("viewBox") == "0 0 200.5 1234567"
    assert (root.get("width"), root.get("height")) == ("200.5", "1234567")
    assert (root[0].text, child.text) == ("<script>", "a & b")
    assert child.attrib == {"x": "1.23", "y": "-0.5", "font-size": "9", "class": "name"}
    assert text.startswith("<svg ")
    assert "<script>" not in text
