"""What every page shares: one file without a network, its style and script inside, light and dark."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from ddtreec import __version__
from ddtreec.core.paths import data_folder
from ddtreec.emit.environment import render

FOLDER = "html"


def asset(name: str) -> Markup:
    """A style or script under templates/html as it is, for a <style> or <script> element."""
    return Markup((data_folder("templates") / FOLDER / name).read_text(encoding="utf-8"))


def json_island(data: bytes) -> Markup:
    """JSON that may stand inside a <script type="application/json">: nothing in it ends the element."""
    return Markup(data.decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def page(template: str, values: Mapping[str, object]) -> str:
    """The page of `templates/html/<template>` with the shared style, the theme button and `values`."""
    shared = {"version": __version__, "base_css": asset("base.css"), "theme_js": asset("theme.js")}
    return render(f"{FOLDER}/{template}", {**shared, **values})
