"""Write docs/files.md anew: every key of trainers' files, from the tables that read them.

python docs/files.py            rewrite the page
python docs/files.py --check    only say that it is stale
"""

import sys
from pathlib import Path
from typing import Final

from zeroplan.foreign.formats import FORMATS, Format
from zeroplan.foreign.table import Entry

PAGE: Final = Path(__file__).with_name("files.md")
INTRODUCTION: Final = """\
# Trainers' own files

zeroplan answers about the files that a trainer loads, and writes them.

```sh
zeroplan import ds_config.json --model 70b --gpus 16 --compute-dtype bf16 --output run.toml
zeroplan estimate --accelerate accelerate.yaml --model llama-3.1-8b --sequence-length 4096
zeroplan estimate --training-args args.json --deepspeed ds_config.json --model 8b --gpus 8
zeroplan export --format deepspeed --model 70b --gpus 64 --strategy zero3 --output ds_config.json
```

- **Who wins.** Flags win over trainers' files, and those over `--spec`. Several files are read together, as the trainer does it: TrainingArguments and accelerate resolve what DeepSpeed's file leaves to "auto". Where two of them say different things about batch, clipping, dtype or GPUs, that is an error.
- **What is left open is asked for.** An "auto" precision is never guessed. What no such file says, the model, the sequence length, often the number of GPUs, comes from flags or a spec.
- **Nothing is dropped silently.** Each "auto", old name, unknown key and key without bearing is named on standard error, and in the comments of the spec that `import` writes.
- **Refused rather than miscounted.** A key marked *refused* ends with exit code 3, unless its value asks for nothing. `--ignore KEY` estimates without it. An unknown key whose name speaks of another parallelism, of packing or of fp8 is refused, too.
- **There and back.** An exported file keeps what its format cannot say, in comments or under the key `zeroplan` of DeepSpeed's JSON, so that it reads back as the same spec. Where a trainer does otherwise than planned, `export` says so. A value that you change in the file afterwards counts.

Anchors and references of YAML are read, at most 16 of them; a key that comes twice is an error, and so is a file of more than 128 KiB. DeepSpeed's JSON may have comments and a last comma, as DeepSpeed's own reader takes them.
"""
SOURCES: Final = {
    "training-args": "transformers 5.24, and names of older versions",
    "accelerate": "accelerate 1.15",
    "torchtitan": "torchtitan 0.1 and 0.2; from 0.3 a job is Python",
    "deepspeed": "DeepSpeed 0.19.8, and names of older versions",
    "fsdp2": "the constants of the script that `export` writes",
}
USES: Final = {"idle": "no bearing", "refused": "*refused*"}


def meaning(entry: Entry) -> tuple[str, str]:
    """Return what a key becomes, and how or why."""
    if entry.use == "renamed":
        return f"`{entry.becomes}`", entry.why
    names = ", ".join(f"`{name.strip()}`" for name in entry.becomes.split(",") if name)
    return USES.get(entry.use, names or "checked"), entry.why


def section(form: Format) -> str:
    """Return the table of one format."""
    rows = [f"| `{entry.key}` | {' | '.join(meaning(entry))} |" for entry in form.table.values()]
    head = f"\n## {form.title}\n\n`--format {form.name}`; {SOURCES[form.name]}.\n"
    return "\n".join((head, "| key | becomes | |", "|---|---|---|", *rows)) + "\n"


def page() -> str:
    """Return the page as it should be."""
    return INTRODUCTION + "".join(section(form) for form in FORMATS.values())


def main() -> None:
    """Rewrite the page, or tell that it is stale and exit with 1."""
    fresh = page()
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != fresh
    if "--check" in sys.argv:
        if stale:
            print(PAGE.name, "is stale")
        sys.exit(stale)
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
