"""`python -m tests.hard_use [PART_OF_A_NAME …]`: plays the scenes and prints what held."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.hard_use import model_scenes as models
from tests.hard_use import store_scenes as stores
from tests.hard_use.stage import BrokenError, Stage, UnplayableError

SCENES: tuple[Callable[[Stage], str], ...] = (
    stores.a_folder_of_somebody_else,
    stores.a_file_among_segments,
    stores.an_index_that_points_elsewhere,
    stores.an_archive_that_writes_elsewhere,
    stores.an_archive_of_lies,
    stores.an_archive_that_swells,
    stores.a_full_disk,
    stores.a_malformed_index,
    stores.no_descriptors,
    stores.pipes_and_damage,
    stores.killed_at_any_instant,
    models.a_template_that_ends_two_ways,
    models.a_template_without_an_end,
    models.a_kernel_in_the_configuration,
    models.one_changed_row,
    models.weights_swapped_under_it,
    models.a_module_beyond_the_window,
    models.an_answer_left_half_read,
    models.a_module_called_self,
    models.a_parent_that_is_swapped,
)


def play(scene: Callable[[Stage], str]) -> tuple[str, str]:
    """Plays one scene; returns "held", "BROKE" or "not played", and what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return "held", scene(Stage.at(Path(folder) / scene.__name__))
        except BrokenError as error:
            return "BROKE", str(error)
        except UnplayableError as error:
            return "not played", str(error)
        except Exception as error:  # a scene that stumbles has not held
            return "BROKE", f"{type(error).__name__}: {error}"


def main(parts: list[str]) -> int:
    """Plays the scenes whose names hold one of these parts, or all; returns the exit status."""
    chosen = [scene for scene in SCENES if not parts or any(part in scene.__name__ for part in parts)]
    counts = {"held": 0, "BROKE": 0, "not played": 0}
    for scene in chosen:
        started = time.monotonic()
        outcome, seen = play(scene)
        counts[outcome] += 1
        what = " ".join((scene.__doc__ or "").split())
        print(
            f"{outcome:10} {scene.__name__.replace('_', ' ')} ({time.monotonic() - started:.0f} s)",
            flush=True,
        )
        print(f"           {what}\n           → {seen}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["BROKE"] or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
