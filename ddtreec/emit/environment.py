"""The Jinja environment: the only place that knows Jinja.

CUDA templates: `${x}` for values and `//% for` for rows. The step program, being Python: `${x}` and `#% for`. Pages:
`${x}` and `%% for`, and there alone values are escaped. Undefined names are errors, and nothing here may depend on
time, host, user or folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import jinja2

from ddtreec.core.paths import data_folder

LINE_STATEMENT = {".py.j2": "#%", ".cu.j2": "//%", ".html.j2": "%%"}
ESCAPED = "%%"
"""Line statements of pages, whose values are escaped; `Markup` marks what is HTML already."""


@cache
def _environment(line_statement: str) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder("templates")),
        undefined=jinja2.StrictUndefined,
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        line_statement_prefix=line_statement,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=line_statement == ESCAPED,
        auto_reload=False,
    )


def render(template: str, values: Mapping[str, object]) -> str:
    """The text of `template` (a path under templates/, such as 'step/step.py.j2') with `values` filled in.

    Raises jinja2.UndefinedError where the template names a value that was not given, and ValueError for a template
    whose kind of line statement is not known.
    """
    for suffix, line_statement in LINE_STATEMENT.items():
        if template.endswith(suffix):
            return _environment(line_statement).get_template(template).render(values)
    raise ValueError(f"template '{template}': not one of {', '.join(LINE_STATEMENT)}")
