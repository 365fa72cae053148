"""The tree that every package carries: programs without debug information, configurations, man pages, completions, papers.

    bin/  lib/tierlab/ (ONNX Runtime)  share/tierlab/configs/  share/man/man1/  share/doc/tierlab/  and a folder for each shell
"""
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ["tierlab-server", "tierlab-loadgen", "tierlab-models", "tierlab-origin", "tierlab-storage-bench"]
SHELLS = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/site-functions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}


def run(*command: str | Path, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"package: {' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def strip(source: Path, target: Path, debug: Path) -> None:
    """Debug information goes to a file beside, which debuggers find by the link that stays."""
    run("objcopy", "--only-keep-debug", source, debug)
    run("objcopy", "--strip-debug", "--strip-unneeded", source, target)
    run("objcopy", f"--add-gnu-debuglink={debug.name}", target.resolve(), cwd=debug.parent)
    target.chmod(0o755)


def programs(bins: Path, tree: Path, debug: Path) -> None:
    (tree / "bin").mkdir(parents=True)
    debug.mkdir(parents=True)
    for name in PROGRAMS:
        source = bins / name
        if not source.is_file():
            raise SystemExit(f"package: {source} is missing: run `make build`, or set --bin")
        strip(source, tree / "bin" / name, debug / f"{name}.debug")


def described(tree: Path) -> None:
    """What the programs write about themselves."""
    man = tree / "share/man/man1"
    for name in PROGRAMS:
        program = tree / "bin" / name
        run(program, "--man", man)
        for shell, place in SHELLS.items():
            path = tree / place.format(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(run(program, "--completions", shell))


def papers(root: Path, tree: Path) -> None:
    share = tree / "share/tierlab"
    shutil.copytree(root / "configs", share / "configs")
    doc = tree / "share/doc/tierlab"
    doc.mkdir(parents=True)
    picture = "results/make-lab-2core/report.png"
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "results/README.md", picture):
        (doc / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, doc / name)
    # The README links into it.
    shutil.copytree(root / "docs", doc / "docs")
    for page in doc.rglob("*.md"):
        page.write_text(without_dead_links(page))


def without_dead_links(page: Path) -> str:
    """Returns a page in which links to files that the package lacks (sources, kept results) are plain text."""

    def kept(link: re.Match) -> str:
        path = link[2].partition("#")[0]
        is_kept = re.match(r"\w+:", path) or (page.parent / path).exists()
        return link[0] if is_kept else link[1]

    return re.sub(r"\[([^\[\]]*)\]\(([^)\s]+)\)", kept, page.read_text())


def onnxruntime(runtime: Path, tree: Path) -> None:
    """The library with its licence, where every program looks first."""
    libraries = sorted(runtime.glob("libonnxruntime.so.*"))
    if not libraries:
        raise SystemExit(f"package: no ONNX Runtime in {runtime}: run scripts/setup onnxruntime")
    (tree / "lib/tierlab").mkdir(parents=True)
    shutil.copy(libraries[-1], tree / "lib/tierlab" / libraries[-1].name)
    for name in ("LICENSE", "ThirdPartyNotices.txt"):
        shutil.copy(runtime / name, tree / "share/doc/tierlab" / f"onnxruntime-{name}")


def glibc(tree: Path) -> tuple[int, int]:
    """The newest version of glibc's symbols that a program asks for."""
    versions = set()
    for name in PROGRAMS:
        symbols = run("objdump", "-T", tree / "bin" / name)
        versions |= {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)}
    return max(versions)
