"""Equations as pictures inside the page, drawn while the site is built.

A reader's browser needs neither a script nor a font for them. The TeX stays beside each as its
description, for screen readers.
"""

import html
import re
import warnings
from typing import Any
from xml.etree import ElementTree

with warnings.catch_warnings():
    # It looks for its font in a way that Python 3.11 alone warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    import ziamath

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?:\(|\[)(?P<tex>.*?)\\(?:\)|\])</(?P=tag)>', re.S
)
_SIZE = 20.0

# Shapes are repeated instead of referred to: references of one picture would meet those of another.
ziamath.config.svg2 = False
ziamath.config.precision = 2


def on_page_content(content: str, **_: Any) -> str:
    """Return a page with its equations drawn."""
    return _MARKED.sub(lambda found: drawn(html.unescape(found["tex"]), found["tag"]), content)


def drawn(tex: str, tag: str) -> str:
    """Return TeX as an element with a picture that has the size and colour of the text.

    Raises:
        ValueError: the equation cannot be drawn; the message holds it.
    """
    inline = tag == "span"
    equation, height = _picture(tex, inline)
    if height > 10 * _SIZE:
        # ziamath stretches brackets around some sums without end.
        tex_of_fixed_size = tex.replace(r"\left", r"\Bigl").replace(r"\right", r"\Bigr")
        equation, height = _picture(tex_of_fixed_size, inline)
    picture = equation.svgxml()
    width = float(picture.attrib["viewBox"].split()[2])
    style = f"width:{width / _SIZE:.3f}em;height:{height / _SIZE:.3f}em"
    if inline:
        style += f";vertical-align:{equation.getyofst() / _SIZE:.3f}em"
    for name in ("width", "height"):
        picture.attrib.pop(name, None)
    picture.attrib.update({"style": style, "aria-hidden": "true"})
    source = ElementTree.tostring(picture, encoding="unicode")
    kind = "equation-inline" if inline else "equation"
    label = html.escape(tex.strip())
    return f'<{tag} class="{kind}" role="math" aria-label="{label}">{source}</{tag}>'


def _picture(tex: str, inline: bool) -> tuple[Any, float]:
    """Return a drawn equation and its height."""
    try:
        equation = ziamath.Latex(tex.strip(), size=_SIZE, inline=inline, color="currentColor")
        return equation, float(equation.svgxml().attrib["viewBox"].split()[3])
    except Exception as reason:
        raise ValueError(f"this equation cannot be drawn ({reason!r}): {tex}") from reason
