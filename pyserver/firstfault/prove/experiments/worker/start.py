"""Started in the user's interpreter: ``python start.py FOLDER [RANK]``. The answer goes into the folder.

It runs from its file, with nothing of the server's environment in reach: this package becomes importable by a spec
that is made here. Standard library only until torch is known to be there; the first lines run on any Python 3.
"""

import importlib.util
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_OLDEST_TORCH = (2, 1)


def main() -> None:
    folder, rank = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or os.curdir) != _HERE]
    if sys.version_info < (3, 9):  # noqa: UP036 - the user's interpreter may be any
        _refuse_python(folder)
        return
    _make_importable()
    from firstfault.prove import messages

    send = messages.sender(folder)
    with open(os.path.join(folder, "experiment.json"), encoding="utf-8") as file:
        plan = json.load(file)
    why = _without_torch()
    if why:
        send({"kind": "refused", "sentence": why})
        return
    from firstfault.prove.experiments.worker.answer import answer

    answer(plan, rank, folder, send)


def _refuse_python(folder: str) -> None:
    sentence = "Python {}.{} is too old; it must be 3.9 or newer.".format(*sys.version_info[:2])
    with open(os.path.join(folder, "{}.jsonl".format(os.getpid())), "w") as file:  # noqa: UP032
        file.write(json.dumps({"kind": "refused", "sentence": sentence}) + "\n")


def _make_importable() -> None:
    place = os.path.join(_PACKAGE, "__init__.py")
    spec = importlib.util.spec_from_file_location("firstfault", place, submodule_search_locations=[_PACKAGE])
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["firstfault"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]


def _without_torch() -> str:
    try:
        import torch
    except Exception as error:  # a broken installation raises anything
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return f"{sys.executable} has no torch. Name the Python of your training with --python."
        return f"torch of {sys.executable} cannot be imported ({type(error).__name__}: {error})."
    version = tuple(int(each) for each in str(torch.__version__).split("+")[0].split(".")[:2])
    if version < _OLDEST_TORCH:
        return f"torch {torch.__version__} of {sys.executable} is too old; it must be 2.1 or newer."
    return ""


if __name__ == "__main__":
    main()
