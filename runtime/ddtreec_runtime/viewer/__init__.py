"""The page that steps through a trace: one HTML file, ours alone, without network or framework."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path

_HERE = Path(__file__).parent


def page(title: str, data: str) -> str:
    """The viewer as HTML text with `data`, a trace as JSON text, inside. Raises ValueError where that is no JSON.

    The trace is data in a JSON script block, and the page's policy lets only our one script run: whatever a token
    says stays text.
    """
    script = (_HERE / "viewer.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'",
        "title": html.escape(title),
        "style": (_HERE / "viewer.css").read_text("utf-8"),
        "data": json_for_html(data),
        "script": script,
    }
    # One pass over the slots: what is put in is never searched for slots again.
    head, *rest = (_HERE / "viewer.html").read_text("utf-8").split("{{")
    return head + "".join(parts[name] + tail for name, tail in (chunk.split("}}", 1) for chunk in rest))


def json_for_html(text: str) -> str:
    """JSON text that no HTML parser can leave early: <, > and & (only ever in strings) become escapes.

    Raises ValueError on what is no JSON.
    """
    json.loads(text)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
