"""Writes what programs ask a PostgreSQL server when they connect: the statements that the crate datafusion-postgres has recorded in
its own tests. They are read where Cargo has put the crate, and not kept here.

    python3 startup.py FOLDER

FOLDER gets `startup.json`: by program its statements.
"""
import json
import pathlib
import re
import subprocess
import sys

PROGRAMS = ["dbeaver", "grafana", "metabase", "pgadmin", "pgcli", "psql"]
MANIFEST = """[package]
name = "startup"
version = "0.0.0"
edition = "2024"

[lib]
path = "lib.rs"

[dependencies]
datafusion-postgres = "=0.19.0"

[workspace]
"""
TOKEN = re.compile(r'//[^\n]*|r(#*)"(.*?)"\1|"((?:[^"\\]|\\.)*)"', re.DOTALL)


def statements(source):
    """The strings of the list of statements in a file of Rust."""
    start = source.index("&[&str] = &[")
    found = []
    for token in TOKEN.finditer(source, start):
        if source.find("\n];", start) < token.start():
            break
        if token[2] is not None:
            found.append(token[2])
        elif token[3] is not None:
            found.append(re.sub(r"\\(.)", lambda c: {"n": "\n", "t": "\t"}.get(c[1], c[1]), token[3]))
    return found


def main():
    folder = pathlib.Path(sys.argv[1])
    crate = folder / "startup"
    crate.mkdir(exist_ok=True)
    (crate / "Cargo.toml").write_text(MANIFEST)
    (crate / "lib.rs").write_text("")
    command = ["cargo", "metadata", "--format-version", "1", "--manifest-path", str(crate / "Cargo.toml")]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    [manifest] = [package["manifest_path"] for package in packages if package["name"] == "datafusion-postgres"]
    tests = pathlib.Path(manifest).parent / "tests"
    asked = {program: statements((tests / f"{program}.rs").read_text()) for program in PROGRAMS}
    (folder / "startup.json").write_text(json.dumps(asked, indent=1))


main()
