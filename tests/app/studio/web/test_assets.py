"""The built editor belongs to its sources, and the page loads nothing from elsewhere."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from app.studio.layout import assets_folder, assets_path
from app.studio.pages import PAGES
from engine.exchange import FORMS
from tests.app.studio.web.endpoint_types import FILE, written

EDITOR = Path(__file__).parents[4] / "app" / "editor"
ASSETS = assets_folder()


def sources_digest() -> str:
    scripts = [f"src/{path.name}" for path in (EDITOR / "src").iterdir()]
    digest = hashlib.sha256()
    for name in sorted(["build.js", "package-lock.json", "package.json", *scripts]):
        digest.update(f"{name}\n".encode())
        digest.update((EDITOR / name).read_bytes())
    return digest.hexdigest()


def test_the_bundle_was_built_from_these_sources() -> None:
    banner = (ASSETS / "editor.bundle.js").read_text(encoding="utf-8").split("\n", 1)[0]
    stamped = re.search(r"sources sha256 ([0-9a-f]{64})", banner)
    assert stamped is not None
    assert stamped[1] == sources_digest(), "build the editor again: make editor"


def test_building_again_gives_the_same_bundle(tmp_path: Path) -> None:
    # Without the packages (no `npm ci` yet) the stamp above is the whole test: nothing is downloaded here.
    if (EDITOR / "node_modules" / "esbuild").exists():
        subprocess.run(["node", "build.js", str(tmp_path)], cwd=EDITOR, check=True, timeout=120)
        for name in ("editor.bundle.js", "LICENSES.txt"):
            assert (tmp_path / name).read_bytes() == (ASSETS / name).read_bytes(), name


def test_the_export_dialog_has_every_form() -> None:
    source = (ASSETS / "documents" / "exporter.js").read_text(encoding="utf-8")
    assert set(re.findall(r'^  \["(\w+)", ', source, re.MULTILINE)) == {*FORMS}


def test_every_bundled_package_has_its_licence() -> None:
    notices = (ASSETS / "LICENSES.txt").read_text(encoding="utf-8")
    for package in ("@codemirror/view", "@codemirror/lang-xml", "@lezer/xml", "style-mod"):
        assert f"{package} " in notices
    assert notices.count("(MIT)") >= 10


def test_scripts_and_styles_name_no_other_host() -> None:
    for path in ASSETS.rglob("*"):
        if path.suffix in {".js", ".css", ".svg"} and path.name != "editor.bundle.js":
            hosts = re.findall(r"https?://[^\s\"'`)]+", path.read_text(encoding="utf-8"))
            assert [
                host for host in hosts if not re.match(r"https?://(www\.w3\.org/|127\.0\.0\.1[:/])", host)
            ] == [], path.name


def test_no_script_writes_html_from_a_string() -> None:
    for path in ASSETS.rglob("*.js"):
        if path.name != "editor.bundle.js":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
                path.name
            )


def test_the_path_of_the_assets_changes_with_them(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    first = assets_path(tmp_path)
    (tmp_path / "a.js").write_text("2")
    assert assets_path(tmp_path) != first


def test_the_types_of_the_scripts_are_those_of_the_server() -> None:
    assert FILE.read_text(encoding="utf-8") == written(), "python -m tests.app.studio.web.endpoint_types"


def test_every_page_has_its_script_and_its_styles() -> None:
    files = {path.name for path in (ASSETS / "pages").iterdir()}
    assert files == {f"{page.name}.{kind}" for page in PAGES for kind in ("js", "css")}
