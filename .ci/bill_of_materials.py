"""Bill of materials of a release, in CycloneDX: the locked packages of all extras, with licences and the graph of dependencies."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name


def bill_of_materials(root: Path, version: str, made_s: int) -> str:
    """Return the bill as JSON.

    Args:
        root: folder of the repository, whose locks in docker/ name the packages and versions.
        version: version of the release.
        made_s: date of the release, seconds of Unix time.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    release = _component(project["name"], version, project["license"])
    locked = {
        canonicalize_name(pin.name): _component(pin.name, str(pin.specifier).removeprefix("=="), _license(pin.name))
        for lock in ("requirements-all.txt", "torch.txt")
        for pin in _pins(root / "docker" / lock)
    }
    asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    bom = Bom(components=locked.values(), serial_number=uuid5(NAMESPACE_URL, f"{project['name']}@{version}@{made_s}"))
    bom.metadata.component = release
    bom.metadata.timestamp = datetime.fromtimestamp(made_s, UTC)
    bom.register_dependency(release, _found(asked, locked))
    for name, component in locked.items():
        bom.register_dependency(component, _found(_requires(name), locked))
    text: str = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return f"{text}\n"


def _component(name: str, version: str, license_text: str | None) -> Component:
    purl = PackageURL("pypi", None, canonicalize_name(name), version)
    licenses = [LicenseFactory().make_from_string(license_text)] if license_text else []
    return Component(
        name=name, version=version, purl=purl, bom_ref=str(purl), type=ComponentType.LIBRARY, licenses=licenses
    )


def _pins(lock: Path) -> Iterator[Requirement]:
    for line in lock.read_text().splitlines():
        if re.match(r"[a-zA-Z0-9]", line):
            yield Requirement(line.rstrip(" \\"))


def _license(name: str) -> str | None:
    """Return the licence in the metadata of a package, if the package is installed here."""
    try:
        told = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return None
    for each in told.get("classifier", []):
        if each.startswith("License :: OSI Approved :: "):
            told.setdefault("license_expression", each.rpartition(" :: ")[2])
    return str(told.get("license_expression") or told.get("license", "")).partition("\n")[0] or None


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def _found(requirements: list[str], locked: Mapping[NormalizedName, Component]) -> list[Component]:
    asked = map(Requirement, requirements)
    names = {
        canonicalize_name(each.name) for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})
    }
    return [locked[name] for name in sorted(names & locked.keys())]
