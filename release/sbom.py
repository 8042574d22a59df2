"""Writes a software bill of materials, in CycloneDX's JSON, of dnnstack as it is installed here.

    python3 release/sbom.py [--extra NAME]... dnnstack.cdx.json

It lists dnnstack and each package that it needs, with version, licence and purl, and which needs
which. Run it where the packages of release/user.txt are installed, and cyclonedx-python-lib; it
reads what is installed, and no network. ``SOURCE_DATE_EPOCH`` gives the time in it, by default 1
January 2020: equal packages give equal bytes.
"""

from __future__ import annotations

import argparse
import os
import uuid
from datetime import datetime, timezone
from importlib.metadata import Distribution, distribution
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from licences import licence, needed, requirements
from packageurl import PackageURL
from packaging.utils import canonicalize_name

_NEW_YEAR_2020 = 1577836800
# Any name makes a UUID of these names.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "pkg:pypi/dnnstack")


def component(name: str, package: Distribution, kind: ComponentType) -> Component:
    purl = PackageURL("pypi", None, name, package.version)
    return Component(
        name=name,
        type=kind,
        version=package.version,
        licenses=[LicenseFactory().make_from_string(licence(package))],
        purl=purl,
        bom_ref=purl.to_string(),
    )


def bill(extras: list[str]) -> str:
    """The text of the bill, with what these extras add."""
    roots = requirements() + (requirements(*extras) if extras else [])
    found = needed(roots)
    here = {
        name: component(name, package, ComponentType.LIBRARY)
        for name, (package, _) in found.items()
    }
    own = component("dnnstack", distribution("dnnstack"), ComponentType.APPLICATION)
    listed = " ".join(sorted(each.purl.to_string() for each in here.values() if each.purl))
    bom = Bom(
        components=here.values(),
        serial_number=uuid.uuid5(_NAMESPACE, f"{own.purl} {listed}"),
    )
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or _NEW_YEAR_2020)
    bom.metadata.timestamp = datetime.fromtimestamp(seconds, timezone.utc)
    bom.metadata.component = own
    direct = {canonicalize_name(root.name) for root in roots}
    bom.register_dependency(own, [each for name, each in here.items() if name in direct])
    for name, (_, users) in found.items():
        for user in users:
            bom.register_dependency(here[user], [here[name]])
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return f"{text}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    extras = distribution("dnnstack").metadata.get_all("Provides-Extra")
    parser.add_argument("--extra", action="append", default=[], choices=extras)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    options.target.write_text(bill(options.extra), encoding="utf-8")


if __name__ == "__main__":
    main()
