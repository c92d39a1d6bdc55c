"""Found by every Python that the measured command starts, since this folder is the first on PYTHONPATH.

It hands over to the user's own ``sitecustomize``, and waits for ``torch``: where a process imports it, the probes are
put on. This package becomes importable by a spec made here; nothing else of the server's environment is in reach.
Nothing here may fail into the user's program. Standard library only, Python >= 3.9.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


def _begin() -> None:
    folder = os.environ.get("FIRSTFAULT_MEASURE", "")
    if not folder:
        return
    if sys.version_info < (3, 9):  # noqa: UP036 - the oldest Python that reads this is not ours to choose
        _say_too_old(folder)
        return
    _make_importable()
    from firstfault.prove import messages

    plan = messages.read_plan(folder)
    if plan is None:
        return
    send = messages.sender(folder)
    version = ".".join(map(str, sys.version_info[:3]))
    send({"kind": "python", "executable": sys.executable, "version": version})
    sys.meta_path.insert(0, _WaitForTorch(plan, send))
    if plan.replaces:
        from firstfault.prove import replacing

        replacing.install(plan, send)
    sys.excepthook = _reporting(sys.excepthook, send)


def _say_too_old(folder: str) -> None:
    """By hand: the module of the messages cannot be imported here."""
    version = ".".join(map(str, sys.version_info[:2]))
    with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a") as file:
        why = f"Python {version} is too old; 3.9 is the oldest that can be measured"
        file.write(f'{{"kind": "unfit", "why": "{why}"}}\n')


def _make_importable() -> None:
    place = os.path.join(_PACKAGE, "__init__.py")
    spec = importlib.util.spec_from_file_location("firstfault", place, submodule_search_locations=[_PACKAGE])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["firstfault"] = module
    spec.loader.exec_module(module)


class _WaitForTorch(importlib.abc.MetaPathFinder):
    """Asked for every module that is imported; interested in one.

    Asking is not importing: transformers and datasets look whether there is a torch before anything imports it. So it
    stays until torch is executed.
    """

    def __init__(self, plan: Any, send: Any) -> None:
        self.plan, self.send, self.asking = plan, send, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec("torch")  # by all other finders
        finally:
            self.asking = False
        if spec is None or spec.loader is None:
            self.send({"kind": "unfit", "why": f"torch is not installed in {sys.executable}"})
            return None
        spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """torch's own loader, and the probes behind it."""

    def __init__(self, loader: Any, finder: _WaitForTorch) -> None:
        self.loader, self.finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # The module shall look as ever afterwards: the loader is seen by inspect, pickle and reload.
        module.__spec__.loader = module.__loader__ = self.loader
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        self.loader.exec_module(module)
        try:
            from firstfault.prove import worker

            worker.start(self.finder.plan)
        except Exception as error:
            why = f"the probes could not be put on ({type(error).__name__}: {error})"
            self.finder.send({"kind": "unfit", "why": why[:300]})


def _reporting(previous: Any, send: Any) -> Any:
    """An exception that ends the process is told as a value; reading it off the output would be guessing."""

    def hook(kind: Any, error: Any, trace: Any) -> None:
        try:
            at = trace
            while at is not None and at.tb_next is not None:
                at = at.tb_next
            place = (at.tb_frame.f_code.co_filename, at.tb_lineno) if at else ("", 0)
            text = (str(error).splitlines() or [""])[0][:300]
            send({"kind": "raised", "type": kind.__name__, "message": text, "file": place[0], "line": place[1]})
        finally:
            previous(kind, error, trace)

    return hook


def _hand_over() -> None:
    """Run the sitecustomize that would have been found without us, under the name it expects."""
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _begin()
except Exception as error:
    sys.stderr.write(f"firstfault: this process is not measured ({type(error).__name__}: {error})\n")
_hand_over()
