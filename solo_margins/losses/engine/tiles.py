"""How a matrix of similarities is cut into tiles of rows."""

import torch

# Entries of one tile: on a CPU it should stay in the cache, a GPU wants large launches.
TILE_ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 26}
SMALLEST_TILE = 64


def row_tiles(rows: int, columns: int, tile_size: int | None, device: torch.device) -> list[slice]:
    """Return slices that cover all rows of a (rows, columns) matrix, the first one the largest."""
    if tile_size is None:
        entries = TILE_ENTRIES.get(device.type, TILE_ENTRIES["cuda"])
        tile_size = rows if rows * columns <= entries else max(SMALLEST_TILE, entries // columns)
    return [slice(start, min(start + tile_size, rows)) for start in range(0, rows, tile_size)]
