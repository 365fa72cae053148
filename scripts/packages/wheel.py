"""A Python wheel of the programs. ONNX Runtime is a package that it depends on: the programs find it in their environment.

Its form: the binary distribution format of Python packages (PyPA), with programs under `.data/scripts` and the rest under
`.data/data`, which pip puts below the environment's folder.
"""
import base64
import hashlib
import zipfile
from pathlib import Path

SUMMARY = "An inference-serving latency lab: what each storage tier does to latency and cost"


def metadata(version: str, onnxruntime: str, readme: str) -> str:
    return (
        f"Metadata-Version: 2.1\nName: tierlab\nVersion: {version}\nSummary: {SUMMARY}\nLicense: Apache-2.0\n"
        f"Requires-Python: >=3.11\nRequires-Dist: onnxruntime=={onnxruntime}\n"
        f"Classifier: Operating System :: POSIX :: Linux\nDescription-Content-Type: text/markdown\n\n{readme}"
    )


class Writer:
    """Files into the archive, each with its line of RECORD."""

    def __init__(self, path: Path, epoch: tuple[int, ...]):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.epoch = epoch
        self.record: list[str] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        info = zipfile.ZipInfo(name, self.epoch)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100000 | mode) << 16
        self.archive.writestr(info, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self, name: str) -> None:
        self.record.append(f"{name},,")
        self.archive.writestr(zipfile.ZipInfo(name, self.epoch), "\n".join(self.record) + "\n")
        self.archive.close()


def build(tree: Path, out: Path, version: str, platform: str, onnxruntime: str, epoch: tuple[int, ...]) -> Path:
    """`tree` without `lib/`; `platform` as in `manylinux_2_34_x86_64`."""
    tag = f"py3-none-{platform}"
    path = out / f"tierlab-{version}-{tag}.whl"
    writer = Writer(path, epoch)
    for file in sorted(tree.rglob("*")):
        place = file.relative_to(tree)
        if not file.is_file() or place.parts[0] == "lib":
            continue
        where = f"tierlab-{version}.data/" + (f"scripts/{place.name}" if place.parts[0] == "bin" else f"data/{place}")
        writer.add(where, file.read_bytes(), 0o755 if place.parts[0] == "bin" else 0o644)
    info = f"tierlab-{version}.dist-info"
    readme = (tree / "share/doc/tierlab/README.md").read_text()
    writer.add(f"{info}/METADATA", metadata(version, onnxruntime, readme).encode())
    writer.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tierlab\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    writer.add(f"{info}/LICENSE", (tree / "share/doc/tierlab/LICENSE").read_bytes())
    writer.close(f"{info}/RECORD")
    return path
