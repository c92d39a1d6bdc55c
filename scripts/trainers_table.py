"""Makes signatures/trainers.toml: runs scripts/trainers_probe.py under each listed release of transformers.

    python scripts/trainers_table.py --environments FOLDER            every release
    python scripts/trainers_table.py --environments FOLDER 5.24.0     these only; the other answers are kept as they are

Each release gets an environment of its own in the folder, which borrows torch and numpy from this interpreter; what the
probe answers is kept beside it. The newest release is asked about every class, the others about the best known ones.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = ROOT / "scripts" / "trainers_probe.py"
TABLE = ROOT / "signatures" / "trainers.toml"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RELEASES = {  # and the accelerate of its time
    "4.45.2": "1.0.1",
    "4.46.3": "1.1.1",
    "4.47.0": "1.2.1",
    "4.48.3": "1.3.0",
    "4.54.1": "1.9.0",
    "4.57.6": "1.11.0",
    "5.0.0": "1.12.0",
    "5.10.4": "1.14.0",
    "5.15.1": "1.15.0",
    "5.24.0": "1.15.0",
}
WHOLE = ("5.24.0",)
HEADS = """
    AlbertForSequenceClassification BartForConditionalGeneration BertForMaskedLM BertForMultipleChoice
    BertForQuestionAnswering BertForSequenceClassification BertForTokenClassification DebertaV2ForSequenceClassification
    DistilBertForMaskedLM DistilBertForSequenceClassification DistilBertForTokenClassification
    ElectraForTokenClassification GPT2ForSequenceClassification GPT2LMHeadModel LlamaForCausalLM
    LlamaForSequenceClassification MarianMTModel ResNetForImageClassification RobertaForMaskedLM
    RobertaForSequenceClassification RobertaForTokenClassification SegformerForSemanticSegmentation
    T5ForConditionalGeneration ViTForImageClassification Wav2Vec2ForCTC XLMRobertaForSequenceClassification
"""
HEADER = """\
# What transformers' Trainer does to the gradient of a window of micro-batches, measured by running it.
#
# Made by scripts/trainers_table.py with torch {torch} and Python {python} on the CPU, where all of these releases run;
# do not edit. One mark for each of the releases in `versions`, in their order:
#
#   1  the gradient is that of the whole window, also over micro-batches that count different numbers of labels
#   d  the same, and the Trainer divides: the model takes no number of items
#   m  the Trainer divides; over micro-batches that count different numbers of labels it is a mean of means
#   k  as many times too large as there are micro-batches
#   -  it does not run here: the class does not exist there, needs a library, or its tiny model cannot be built
#   .  not asked
#
# {measured}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("releases", nargs="*", help="the releases to ask anew")
    given = parser.parse_args()
    for release in given.releases or RELEASES:
        answers = _ask(release, given.environments)
        _answers(given.environments, release).write_text(answers, encoding="utf-8")
    known = {each: _answers(given.environments, each) for each in RELEASES}
    missing = [release for release, path in known.items() if not path.exists()]
    if missing:
        sys.exit(f"not asked yet: {' '.join(missing)}")
    TABLE.write_text(_table({release: _read(path) for release, path in known.items()}), encoding="utf-8")


def _answers(folder: Path, release: str) -> Path:
    return folder / f"answers-{release}.jsonl"


def _ask(release: str, folder: Path) -> str:
    environment = folder / f"tf-{release}"
    python = environment / "bin" / "python"
    if not python.exists():
        _make(environment, release)
    command = [str(python), str(PROBE), *(() if release in WHOLE else ("--heads", *HEADS.split()))]
    print(release, flush=True)
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _make(environment: Path, release: str) -> None:
    """An environment that sees the packages of this interpreter behind its own."""
    venv.create(environment, with_pip=False)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    python = str(environment / "bin" / "python")
    wanted = [f"transformers=={release}", f"accelerate=={RELEASES[release]}", "pillow"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *wanted], check=True)


# ------------------------------------------------------------------------------------------------ the table

Answer = dict[str, str]


def _read(path: Path) -> list[Answer]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _table(answers: dict[str, list[Answer]]) -> str:
    cases, heads = _marks(answers, "case"), _marks(answers, "head")
    heads = {name: marks for name, marks in heads.items() if set(marks) - {"-", "."}}
    import torch

    newest = list(RELEASES)[-1]
    measured = sum(marks[-1] not in "-." for marks in heads.values())
    wrong = sum(marks[-1] == "k" for marks in heads.values())
    said = f"{newest}: {measured} classes measured, {wrong} of them k."
    lines = [HEADER.format(torch=torch.__version__.partition("+")[0], python=PYTHON, measured=said)]
    lines += [f"versions = [{', '.join(json.dumps(each) for each in RELEASES)}]", "", "[cases]"]
    lines += [f'{name} = "{marks}"' for name, marks in sorted(cases.items())]
    lines += ["", "[heads]", *(f'{name} = "{marks}"' for name, marks in sorted(heads.items()))]
    for auto, kinds in sorted(_kinds(answers, set(heads)).items()):
        lines += ["", f"[auto.{auto}]", *(f'{json.dumps(kind)} = "{head}"' for kind, head in sorted(kinds.items()))]
    return "\n".join(lines) + "\n"


def _marks(answers: dict[str, list[Answer]], key: str) -> dict[str, str]:
    """Name -> one mark for each release. Any factor but 1 and the steps is noise of the tiny model: unknown."""
    found = {release: {each[key]: each["mark"] for each in rows if key in each} for release, rows in answers.items()}
    names = {name for each in found.values() for name in each}
    return {
        name: "".join(
            each.get(name, "." if release not in WHOLE else "-").replace("s", "-") for release, each in found.items()
        )
        for name in names
    }


def _kinds(answers: dict[str, list[Answer]], heads: set[str]) -> dict[str, dict[str, str]]:
    """Automatic class -> kind of model -> the class that it makes; the newest release that has it counts."""
    found: dict[str, dict[str, str]] = {}
    for rows in answers.values():
        for each in rows:
            if each.get("head") in heads:
                for kind in each["kinds"].split():
                    found.setdefault(each["auto"], {})[kind] = each["head"]
    return found


if __name__ == "__main__":
    main()
