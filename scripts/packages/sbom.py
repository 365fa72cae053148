"""What the programs are made of, as CycloneDX 1.5 in JSON: every crate that is linked into one of them, from `cargo metadata`
and Cargo.lock, and ONNX Runtime. No crate that only tests or builds use."""
import json
import tomllib
import uuid
from pathlib import Path

from .tree import PROGRAMS, run


def is_root(package: dict) -> bool:
    """True for a crate of the workspace that builds one of the packaged programs."""
    bins = {target["name"] for target in package["targets"] if "bin" in target["kind"]}
    return package["source"] is None and not bins.isdisjoint(PROGRAMS)


def linked(metadata: dict) -> tuple[set[str], dict[str, list[str]]]:
    """The ids that the programs reach by normal dependencies, and what each of them needs."""
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    todo = [package["id"] for package in metadata["packages"] if is_root(package)]
    seen: set[str] = set()
    while todo:
        if (one := todo.pop()) not in seen:
            seen.add(one)
            todo += needs[one]
    return seen, needs


def component(package: dict, checksums: dict) -> dict:
    reference = f"pkg:cargo/{package['name']}@{package['version']}"
    made = {
        "type": "library", "bom-ref": reference, "name": package["name"], "version": package["version"], "purl": reference,
        "scope": "required",
    }  # fmt: skip
    if package["license"]:
        # Old crates write `/` where SPDX has `OR`.
        made["licenses"] = [{"expression": " OR ".join(part.strip() for part in package["license"].split("/"))}]
    if digest := checksums.get((package["name"], package["version"])):
        made["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return made


def build(root: Path, path: Path, version: str, commit: str, onnxruntime: str, target: str) -> dict:
    said = run("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target, cwd=root)
    metadata = json.loads(said)
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    seen, needs = linked(metadata)
    packages = {package["id"]: package for package in metadata["packages"] if package["id"] in seen}
    parts = {one: component(package, checksums) for one, package in packages.items()}
    runtime = f"pkg:pypi/onnxruntime@{onnxruntime}"
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'tierlab {version} {commit}')}",
        "metadata": {"component": {
            "type": "application", "bom-ref": "tierlab", "name": "tierlab", "version": version,
            "licenses": [{"expression": "Apache-2.0"}], "properties": [{"name": "tierlab:commit", "value": commit}],
        }},
        "components": sorted(parts.values(), key=lambda part: part["purl"]) + [{
            "type": "library", "bom-ref": runtime, "name": "onnxruntime", "version": onnxruntime, "purl": runtime,
            "scope": "required", "licenses": [{"expression": "MIT"}],
        }],
        "dependencies": [{"ref": "tierlab", "dependsOn": sorted(
            [part["bom-ref"] for one, part in parts.items() if is_root(packages[one])]) + [runtime]}] + [
            {"ref": part["bom-ref"], "dependsOn": sorted({parts[need]["bom-ref"] for need in needs[one]})}
            for one, part in sorted(parts.items(), key=lambda item: item[1]["bom-ref"])],
    }  # fmt: skip
    path.write_text(json.dumps(bom, indent=1) + "\n")
    return bom
