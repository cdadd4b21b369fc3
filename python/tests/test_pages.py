"""The programs of the pages and the notebook run as they stand."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT.parent / "docs" / "python.md"]
PROGRAMS = [
    pytest.param(program, id=f"{page.name}-{number}")
    for page in PAGES
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_a_page(program: str, tmp_path: Path) -> None:
    for package in ("pyarrow", "polars", "pandas", "duckdb"):
        if re.search(rf"\b{package}\b|\.{ {'polars': 'pl', 'pandas': 'df', 'pyarrow': 'arrow'}.get(package, package) }\(\)", program):
            pytest.importorskip(package)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook(notebook: Path, tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel", "polars", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the notebook is not run: {package} is not installed")
    target = tmp_path / notebook.name
    target.write_bytes(notebook.read_bytes())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    home = {**os.environ, "PATH": path, "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    run = [sys.executable, "-m", "jupyter", "execute", "--inplace", str(target)]
    subprocess.run(run, cwd=tmp_path, env=home, check=True)
    text = target.read_text(encoding="utf-8")
    assert "<svg" in text and "<table>" in text
