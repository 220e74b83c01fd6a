"""Write the tables of all recipes, with the papers' accuracies beside them, into docs/recipes.md.

python scripts/recipe_table.py           # write it
python scripts/recipe_table.py --check   # fail if it is not up to date
"""

import argparse
import sys
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
    "beta": "b",
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


def matrix(method: str) -> list[str]:
    """Return a table of the variants that differ between data sets, a line for each of these."""
    variants = [
        variant
        for variant in RECIPES[method]["cifar10"]
        if not is_same_for_all_data(method, variant)
    ]
    lines = [
        f"| `{method}` | " + " | ".join(f"`{variant}`" for variant in variants) + " |",
        "|---" * (1 + len(variants)) + "|",
    ]
    for data, by_variant in RECIPES[method].items():
        cells = [
            cell(method, data, variant) if variant in by_variant else "" for variant in variants
        ]
        lines.append(f"| `data={data}` | " + " | ".join(cells) + " |")
    return lines


def cell(method: str, data: str, variant: str) -> str:
    """Return the values of a recipe, in italics where they are ours, and the paper's accuracy."""
    text = described(RECIPES[method][data][variant]) or "off"
    if not is_from_paper(method, data, variant):
        return f"*{text}*"
    accuracy = LINEAR_PROBING.get((method, data, variant))
    return f"{text}: {accuracy.mean:.2f} ± {accuracy.std:.2f}" if accuracy else text


def common_values() -> list[str]:
    """Return a table of the variants that have the same values on every data set."""
    lines = ["| `variant=` | values on all data | methods |", "|---|---|---|"]
    methods_by_values: dict[tuple[str, str], list[str]] = {}
    for method in RECIPES:
        for variant, values in RECIPES[method]["cifar10"].items():
            if is_same_for_all_data(method, variant) and variant not in ("margins", "curv"):
                key = (variant, described(values))
                methods_by_values.setdefault(key, []).append(f"`{method}`")
    for (variant, text), methods in methods_by_values.items():
        lines.append(f"| `{variant}` | {text} | {', '.join(methods)} |")
    return lines


def is_same_for_all_data(method: str, variant: str) -> bool:
    """Tell whether a variant has the same values whatever the data."""
    cells = [
        by_variant[variant] for by_variant in RECIPES[method].values() if variant in by_variant
    ]
    return variant != "baseline" and all(cell == cells[0] for cell in cells)


def table() -> str:
    """Return the tables in Markdown; methods that borrow their values are named below them."""
    tables = [matrix(method) for method in WITH_VALUES_OF_THEIR_OWN] + [common_values()]
    return "\n\n".join("\n".join(lines) for lines in tables)


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
