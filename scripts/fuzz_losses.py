"""Call the losses with random shapes, dtypes, settings and values, and check what they promise.

A case that fails is shrunk to the smallest one that does, printed, and ends the script with code 1.

    python scripts/fuzz_losses.py --cases 100000
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

SUPPORT = Path(__file__).resolve().parents[1] / "tests" / "support"
CASES_AT_A_TIME = 2000


def fuzz(seed: int, cases: int) -> tuple[Counter[str], str | None]:
    """Run some cases; return how many of which loss, and what failed, if anything."""
    # The suite makes the same cases, only fewer.
    sys.path.insert(0, str(SUPPORT))
    import loss_cases
    import torch
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    torch.set_num_threads(1)
    counted: Counter[str] = Counter()

    def one(case: loss_cases.Case) -> None:
        counted[case.loss] += 1
        loss_cases.check(case)

    run = settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )(given(loss_cases.cases())(one))
    try:
        seeded(seed)(run)()
    except BaseException:
        return counted, traceback.format_exc()
    return counted, None


def main() -> None:
    """Run all cases and print how many there were."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    began = time.perf_counter()
    begins = range(0, arguments.cases, CASES_AT_A_TIME)
    sizes = [min(CASES_AT_A_TIME, arguments.cases - begin) for begin in begins]
    counted: Counter[str] = Counter()
    failures = []
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(arguments.processes, mp_context=context) as pool,
        tqdm(total=arguments.cases, unit="case", smoothing=0) as bar,
    ):
        pending = {
            pool.submit(fuzz, arguments.seed + part, size): size for part, size in enumerate(sizes)
        }
        for done in as_completed(pending):
            found, failure = done.result()
            counted += found
            bar.update(pending[done])
            if failure is not None:
                failures.append(failure)
                tqdm.write(failure, file=sys.stderr)
    minutes = (time.perf_counter() - began) / 60
    each = ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))
    print(f"{counted.total()} cases in {minutes:.1f} minutes: {each}")
    print(f"{len(failures)} of {len(sizes)} parts failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
