"""Puts the built page into a wheel and an sdist: built here with npm when the checkout does not hold it yet.

An editable install changes nothing (`make run` builds the page itself), and an sdist already holds it, so that
nobody who installs Turnkeeper needs Node.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageBuildHook(BuildHookInterface[Any]):
    """Build `web/` into `src/turnkeeper/server/static/` where that is missing."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise RuntimeError, with the two commands, when the page is missing and npm is too."""
        web = Path(self.root) / "web"
        page = Path(self.root) / "src" / "turnkeeper" / "server" / "static" / "index.html"
        if version == "editable" or page.exists() or not (web / "package.json").exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            msg = (
                "the page is not built and npm is missing; either run `make web`, or install Node and run\n"
                "    cd web && npm ci && npm run build"
            )
            raise RuntimeError(msg)
        for step in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, *step], cwd=web, check=True)
