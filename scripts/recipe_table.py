"""Write the table of all recipes, with the papers' accuracies beside them, into docs/recipes.md.

python scripts/recipe_table.py           # write it
python scripts/recipe_table.py --check   # fail if it is not up to date
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reproduce.papers import LINEAR_PROBING

from solo_margins.recipes import RECIPES, is_from_paper

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipes.md"
BEGIN, END = "<!-- begin: scripts/recipe_table.py -->", "<!-- end -->"

WITH_VALUES_OF_THEIR_OWN = ("mocov3_margin", "simclr_margin", "byol_curv")

SYMBOLS = {
    "angular": "m₁",
    "subtractive": "m₂",
    "positive_scale": "s",
    "curvature": "c",
    "attenuation": "α",
    "temperature": "τ",
    "weight": "λ",
    "lower": "δ⁺",
    "upper": "δ⁻",
    "kind": "negatives",
    "tau_plus": "τ⁺",
    "beta": "β",
}


def described(values: dict[str, Any]) -> str:
    """Return the settings of a cell in the papers' symbols."""
    parts = []
    for name, value in values.items():
        if name == "optimizer":
            parts.append(f"`optimizer={value['name']}`")
        elif isinstance(value, dict):
            parts.append(described(value) if value else "")
        else:
            text = value if isinstance(value, str) else f"{value:g}"
            parts.append(f"{SYMBOLS[name]} = {text}")
    return ", ".join(part for part in parts if part)


def rows() -> Iterator[tuple[str, ...]]:
    """Yield method, data, variant, values, whose they are, and the paper's accuracy."""
    seen = set()
    for method in WITH_VALUES_OF_THEIR_OWN:
        for data, by_variant in RECIPES[method].items():
            for variant, values in by_variant.items():
                from_paper = is_from_paper(method, data, variant)
                text = described(values) or "off"
                accuracy = LINEAR_PROBING.get((method, data, variant))
                reported = f"{accuracy.mean:.3f} ± {accuracy.std:.3f}" if accuracy else ""
                source = "paper" if from_paper else "ours"
                if is_same_for_all_data(method, variant):
                    data, reported = "any", ""
                place = data if data == "any" else f"`{data}`"
                row = (f"`{method}`", place, f"`{variant}`", text, source, reported)
                if row not in seen:
                    seen.add(row)
                    yield row


def is_same_for_all_data(method: str, variant: str) -> bool:
    """Tell whether a variant has the same values whatever the data."""
    cells = [
        by_variant[variant] for by_variant in RECIPES[method].values() if variant in by_variant
    ]
    return variant != "baseline" and all(cell == cells[0] for cell in cells)


def table() -> str:
    """Return the table in Markdown; methods that borrow their values are named below it."""
    head = ("`--config-name`", "`data=`", "`variant=`", "values", "whose", "paper, linear probe, %")
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|---|---|---:|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows()]
    return "\n".join(lines)


def main() -> None:
    """Write the page, or compare it with what would be written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if arguments.check:
        if wanted != page:
            sys.exit(f"{PAGE} is not up to date: run python scripts/recipe_table.py")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
