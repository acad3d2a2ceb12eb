"""Scenes of models: other weights under an old name, templates that mislead or never end, hidden code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading

from tests.hard_use.stage import ROOT, Stage, answered, refused, require

ENDS_TWO_WAYS = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)


def a_template_that_ends_two_ways(stage: Stage) -> str:
    """Where a template ends otherwise with a generation prompt, the prompt is what the template invites."""
    folder = stage.model()
    stage.template(folder, ENDS_TWO_WAYS)
    source = '<schema name="trip"><user><module name="tokyo">Tokyo it is.</module></user></schema>'
    (stage.folder / "schema.pml").write_text(source, encoding="utf-8")
    prompt = '<prompt schema="trip"><tokyo/></prompt>'
    (stage.folder / "prompt.pml").write_text(prompt, encoding="utf-8")
    answer = answered(stage.run("--model", str(folder)))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    turns = [{"role": "user", "content": "Tokyo it is."}]
    wanted = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    count = answer["tokens"]["prompt"]
    require(count == len(wanted), f"{count} tokens, and apply_chat_template gives {len(wanted)}")
    return f"{count} tokens, as many as the template's own"


def a_template_without_an_end(stage: Stage) -> str:
    """Templates that loop for ever or write gigabytes are stopped, in words."""
    loop = "{% for a in range(99999) %}"
    loops = loop * 3 + "{% endfor %}" * 3
    swells = "{% for m in messages %}{{ m.content * 400000000 }}{{ 'a' * 4000000000 }}{% endfor %}"
    folder = stage.model()
    for source in (loops, swells):
        stage.template(folder, source)
        ran = stage.run("--model", str(folder), patience=60)
        refused(ran, "template")
    return "both stopped within a minute, and said"


def a_kernel_in_the_configuration(stage: Stage) -> str:
    """A configuration that names a kernel to download downloads nothing."""
    folder = stage.model(_attn_implementation="somebody/kernel", attn_implementation="somebody/kernel")
    ran = stage.run("--model", str(folder))
    require(not ran.crashed, ran.said)
    if ran.status == 0:
        return "the field is ignored; the answer came"
    require("somebody/kernel" in ran.said, f"refused without saying why: {ran.said}")
    return "refused in words"


def one_changed_row(stage: Stage) -> str:
    """One changed value anywhere in a large weight file makes another model."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = stage.model(vocab_size=100_000)
    tensors = load_file(folder / "model.safetensors")
    small = tensors["model.embed_tokens.weight"]
    large = torch.zeros(100_000, small.shape[1], dtype=torch.float32)
    large[: small.shape[0]] = small.float()
    tensors["model.embed_tokens.weight"] = large
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    answered(stage.run("--model", str(folder)))
    raw = (folder / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    described = json.loads(raw[8:header])["model.embed_tokens.weight"]["data_offsets"]
    at = header + described[0] + 291 * small.shape[1] * 4  # a row that these prompts use
    with (folder / "model.safetensors").open("r+b") as file:
        for row in (0, 1, 2, 3):
            file.seek(at + row * small.shape[1] * 4)
            file.write(b"\0" * small.shape[1] * 4)
    changed = answered(stage.run("--model", str(folder)))
    require(
        all(use["outcome"] == "miss" for use in changed["segments"]), "segments of other weights were read"
    )
    return f"a file of {len(raw) >> 20} MiB: every segment is computed again"


def a_module_beyond_the_window(stage: Stage) -> str:
    """What does not fit the context window is refused by run as by check, before anything is computed."""
    folder = stage.model(max_position_embeddings=64)
    source = (
        '<schema name="trip"><user><module name="plan">For <param name="duration" len="60"/> days, and a '
        "few words more.</module></user></schema>"
    )
    (stage.folder / "schema.pml").write_text(source, encoding="utf-8")
    prompt = '<prompt schema="trip"><plan duration="3"/>So?</prompt>'
    (stage.folder / "prompt.pml").write_text(prompt, encoding="utf-8")
    refused(stage.pml("check", "--model", str(folder), "schema.pml"), "E502")
    refused(stage.run("--model", str(folder)), "E502")
    return "E502 from both"


_TWO_ANSWERS = """
import sys, threading
from pathlib import Path
from engine import Engine, RunSettings
engine = Engine.open("demo", cache_dir=Path(sys.argv[1]))
prompt = engine.schema(Path("schema.pml")).prompt(Path("prompt.pml"))
settings = RunSettings(max_new_tokens=8)
alone = prompt.answer(settings).token_ids
held = prompt.stream(settings)
for _ in range(3):
    next(held)
cycle = [held]; cycle.append(cycle); del held
beside = prompt.answer(settings).token_ids
rest = [e for e in cycle[0]][-1].answer.token_ids
print("same" if alone == beside == rest else "differ")
"""


def an_answer_left_half_read(stage: Stage) -> str:
    """An answer that nobody reads to its end holds up no other one."""
    command = [sys.executable, "-c", _TWO_ANSWERS, str(stage.cache)]
    try:
        ended = subprocess.run(
            command,
            cwd=stage.folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        require(False, "the second answer waited for ever")
    require(ended.stdout.strip() == "same", ended.stdout + ended.stderr)
    return "the second came, and both have the same tokens as alone"


_SWAPPED = """
import shutil, sys
from pathlib import Path
from engine import Engine, RunSettings
from engine.base.errors import PromptCacheError
engine = Engine.open(sys.argv[2], cache_dir=Path(sys.argv[1]))
prompt = engine.schema(Path("schema.pml")).prompt(Path("prompt.pml"))
settings = RunSettings(max_new_tokens=8)
def answer(scope):
    given = RunSettings(max_new_tokens=8, scope=scope)
    return prompt.answer(given).token_ids
first = answer("anchored")
target = Path(sys.argv[2]) / "model.safetensors"
target.chmod(0o644)
with open(sys.argv[3], "rb") as new, target.open("r+b") as old:  # in place, as cp does
    shutil.copyfileobj(new, old)
try:
    print("same" if answer("anchored") == first and answer("isolated") is not None else "differ")
except PromptCacheError as error:
    print("refused:", error)
"""


def weights_swapped_under_it(stage: Stage) -> str:
    """Weights that are replaced under a running engine never answer, and never reach the store."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = stage.model()
    tensors = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    save_file({k: torch.randn_like(v) for k, v in tensors.items()}, stage.folder / "new", {"format": "pt"})
    honest = stage.folder / "honest"
    shutil.copytree(folder, honest)
    command = [sys.executable, "-c", _SWAPPED, str(stage.cache), str(folder), str(stage.folder / "new")]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1", "HOME": str(stage.folder)}
    ended = subprocess.run(
        command, cwd=stage.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    said = ended.stdout.strip()
    require(said == "same" or said.startswith("refused"), said + ended.stderr)
    for scope in ("anchored", "isolated"):
        both = json.loads(stage.run("--model", str(honest), "--scope", scope, mode="both").out)
        require(both["kl_first_token"] < 0.05, f"{scope}: what was stored is of other weights")
    return said.split(":")[0] + "; what was stored is of the old weights"


def a_module_called_self(stage: Stage) -> str:
    """Modules may be called what Python calls its own, and the export still runs."""
    source = '<schema name="trip"><module name="self">I.</module> <module name="class">C.</module></schema>'
    (stage.folder / "schema.pml").write_text(source, encoding="utf-8")
    (stage.folder / "prompt.pml").write_text('<prompt schema="trip"><self/>So?</prompt>', encoding="utf-8")
    ran = stage.pml("export", "schema.pml", "--to", "python", "--prompt", "prompt.pml", "-o", "trip.py")
    require(ran.status == 0, ran.said)
    again = stage.pml("import", "trip.py", "-o", "again.pml")
    require(again.status == 0, again.said)
    code = "import trip"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=stage.folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    require(done.returncode == 0, done.stderr)
    return "exported, imported and run"


def a_parent_that_is_swapped(stage: Stage) -> str:
    """A `src` whose parent folder is exchanged for a link out never reads what lies outside."""
    from engine.pml import parse_schema

    book, outside = stage.folder / "book", stage.folder / "outside"
    for folder, text in ((book / "part", "inside"), (outside, "SECRET")):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(text)
    (book / "link").symlink_to(outside)
    source = '<schema name="s"><module name="m" src="part/a.txt"/></schema>'
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (book / "part").rename(book / "kept")
            (book / "link").rename(book / "part")
            (book / "part").rename(book / "link")
            (book / "kept").rename(book / "part")

    worker = threading.Thread(target=swap)
    worker.start()
    leaks = 0
    try:
        for _ in range(3000):
            read = parse_schema(source, base=book)
            leaks += read.tree is not None and "SECRET" in str(read.tree)
    finally:
        stop.set()
        worker.join()
    require(leaks == 0, f"{leaks} of 3,000 reads leaked")
    return "3,000 reads, no leak"
