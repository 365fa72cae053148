"""A Debian package: the tree under /usr, the configuration under /etc/tierlab, a unit that runs the server as a user of its own."""
import gzip
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from .tree import PROGRAMS, run

MAINTAINER = "Tierlab developers <tierlab@tierlab.invalid>"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DESCRIPTION = """\
Description: inference-serving latency lab
 Tierlab measures what each storage tier (NVMe, NFS, S3, Arrow Flight) does to
 the latency and the price of serving ONNX models: a server of the Open
 Inference Protocol v2, an open-loop load generator, and what prepares models
 and feature tables. ONNX Runtime comes with it, in /usr/lib/tierlab.
"""


def gzipped(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def depends(usr: Path) -> str:
    """What the programs and the library are linked with, with the versions that Debian's own lists of symbols give."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "debian").mkdir()
        (Path(folder) / "debian/control").write_text(f"Source: tierlab\nMaintainer: {MAINTAINER}\n\nPackage: tierlab\nArchitecture: any\n")
        files = [usr / "bin" / name for name in PROGRAMS] + list((usr / "lib/tierlab").glob("*.so*"))
        words = [word for file in files for word in ("-e", file.resolve())]
        said = run("dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{(usr / 'lib/tierlab').resolve()}", *words, cwd=folder)
    return said.split("shlibs:Depends=", 1)[1].strip()


def lay_out(tree: Path, root: Path, package: Path) -> None:
    usr = package / "usr"
    shutil.copytree(tree, usr)
    etc = package / "etc/tierlab"
    shutil.copytree(usr / "share/tierlab/configs/tiers", etc / "tiers")
    shutil.copy(usr / "share/tierlab/configs/server.toml", etc / "server.toml")
    unit = package / "lib/systemd/system/tierlab-server.service"
    unit.parent.mkdir(parents=True)
    shutil.copy(root / "deploy/package/tierlab-server.service", unit)
    # Debian's names for zsh's folder, and its form of manuals.
    (usr / "share/zsh/site-functions").rename(usr / "share/zsh/vendor-completions")
    for page in (usr / "share/man/man1").iterdir():
        gzipped(page.with_name(page.name + ".gz"), page.read_bytes())
        page.unlink()


def documents(root: Path, package: Path, version: str, when: int) -> None:
    doc = package / "usr/share/doc/tierlab"
    gzipped(doc / "changelog.gz", (doc / "CHANGELOG.md").read_bytes())
    (doc / "CHANGELOG.md").unlink()
    (doc / "LICENSE").unlink()
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(when))
    entry = f"tierlab ({version}-1) unstable; urgency=medium\n\n  * Built from the project's own sources; see changelog.gz.\n\n -- {MAINTAINER}  {stamp}\n"
    gzipped(doc / "changelog.Debian.gz", entry.encode())
    shutil.copy(root / "deploy/package/copyright", doc / "copyright")
    overrides = package / "usr/share/lintian/overrides/tierlab"
    overrides.parent.mkdir(parents=True)
    shutil.copy(root / "deploy/package/lintian-overrides", overrides)


def control(package: Path, version: str, architecture: str) -> None:
    debian = package / "DEBIAN"
    debian.mkdir()
    files = sorted(file for file in package.rglob("*") if file.is_file())
    size = sum(file.stat().st_size for file in files) // 1024
    (debian / "control").write_text(
        f"Package: tierlab\nVersion: {version}-1\nSection: science\nPriority: optional\nArchitecture: {architecture}\n"
        f"Maintainer: {MAINTAINER}\nInstalled-Size: {size}\nDepends: {depends(package / 'usr')}\nRecommends: ca-certificates\n{DESCRIPTION}"
    )
    names = [file.relative_to(package) for file in files]
    (debian / "conffiles").write_text("".join(f"/{name}\n" for name in names if name.parts[0] == "etc"))
    sums = (f"{hashlib.md5(file.read_bytes()).hexdigest()}  {name}\n" for file, name in zip(files, names) if name.parts[0] != "etc")
    (debian / "md5sums").write_text("".join(sums))


def build(tree: Path, root: Path, out: Path, version: str, machine: str, when: int) -> Path:
    architecture = ARCHITECTURES.get(machine, machine)
    path = out / f"tierlab_{version}-1_{architecture}.deb"
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        lay_out(tree, root, package)
        documents(root, package, version, when)
        control(package, version, architecture)
        for place in package.rglob("*"):
            executable = place.is_dir() or place.parent == package / "usr/bin"
            place.chmod(0o755 if executable else 0o644)
        package.chmod(0o755)
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", package, path, env=os.environ | {"SOURCE_DATE_EPOCH": str(when)})
    return path
