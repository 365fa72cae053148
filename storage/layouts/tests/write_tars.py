"""write_tars.py FOLDER: an archive in each format that Python's tarfile writes, with a folder, a long name and fractions of a
second, which pax keeps in a header of its own."""
import io
import sys
import tarfile
from pathlib import Path

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
for name, kind in FORMATS.items():
    long = "n" * (90 if name == "ustar" else 300)
    with tarfile.open(Path(sys.argv[1]) / name, "w", format=kind) as archive:
        folder = tarfile.TarInfo("d/")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for path in ["d/1.cls", f"d/{long}/2345678901.cls", "d/3.cls"]:
            member = tarfile.TarInfo(path)
            body = (path * 9).encode()
            member.size, member.mtime = len(body), 1700000000.25
            archive.addfile(member, io.BytesIO(body))
