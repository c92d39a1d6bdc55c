"""Model families of torchvision, timm and segmentation_models_pytorch that come with BatchNorm.

``signatures/models.toml`` says it of every model that the libraries list, made by building each. Models that only older
releases had are known by their families. A name that neither knows is unknown, which is not "no BatchNorm".
"""

import ast
import re
from collections.abc import Iterator

from firstfault.lint.bindings import bindings, keyword
from firstfault.lint.built_models import built_with_batch_norm, decoder_with_batch_norm
from firstfault.lint.calls import argument_of
from firstfault.lint.norms import BatchNorm, is_batch_norm_class
from firstfault.lint.norms_choice import calls_by_name, may_be_reached
from firstfault.lint.script import Script, dotted, per_script

_PREFIXES = ("tf_", "tv_", "gluon_", "legacy_", "ssl_", "swsl_", "ig_", "timm-", "tu-", "hf_hub:timm/", "hf-hub:timm/")
_WITH_BATCH_NORM = re.compile(
    r"(?:wide_)?resnet\d|resnext\d|(?:se_?|sk|eca|ecas?e?|res2|cs|cs3|csp)resnex?t|resnest\d|res2ne[xt]+\d|senet\d"
    r"|efficientnet|mixnet|mnasnet|mobilenet_?v[1-4]|fbnet|densenet\d|inception_|googlenet|regnet"
    r"|shufflenet|xception|vgg\d+_bn|hrnet_|dla\d|dpn\d|rexnet|repvgg|ghostnet|cspdarknet|darknet\d|ese_vovnet|lcnet"
    r"|tinynet|hardcorenas|spnasnet|gernet|nasnet|pnasnet|deeplabv3_|fcn_resnet|lraspp_|r3d_18|mc3_18|r2plus1d_18|s3d$",
    re.IGNORECASE,
)
_WITHOUT = re.compile(r"_gn(?:_|$)|_bit(?:_|$)|bit$|evos|^nf_|nfnet|rcnn|retinanet")
_TORCHVISION = re.compile(r"torchvision\.models\.(?:\w+\.)*(\w+)")
_SMP_MODELS = re.compile(r"segmentation_models_pytorch\.(?:\w+\.)*(\w+)")
_DEFAULT_ENCODER = "resnet34"
_DEPTH = 4


@per_script
def families(script: Script) -> list[BatchNorm]:
    """The calls of a script that build a model of a family with BatchNorm."""
    return list(_families(script))


def has_batch_norm(family: str) -> bool:
    """Whether models of this name have BatchNorm in their default configuration."""
    name = family.partition(".")[0].lower()
    while True:
        built = built_with_batch_norm(name)
        if built is not None:
            return built
        prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
        if not prefix:
            return bool(_WITH_BATCH_NORM.match(name)) and not _WITHOUT.search(name)
        name = name.removeprefix(prefix)


def _families(script: Script) -> Iterator[BatchNorm]:
    has_smp = "segmentation_models_pytorch" in script.source
    for call in script.nodes(ast.Call):
        named = model_name(script, call)
        words = words_of(script, named) if isinstance(named, ast.expr) else [named] if named else []
        name = next((each for each in words if has_batch_norm(each)), None) or (
            _decoder(script, call) if has_smp else None
        )
        if name is not None and not has_own_norm(script, call) and may_be_reached(script, call):
            yield BatchNorm(call, "family", name)


def model_name(script: Script, call: ast.Call) -> ast.expr | str | None:
    """What the call builds, by the name that the library gives it, or the expression that holds the name."""
    qualified = script.qualified(call.func)
    if qualified.rpartition(".")[2] == "create_model" and qualified.startswith("timm"):
        return call.args[0] if call.args else keyword(call, "model_name")
    looked_up = _looked_up(script, call, qualified)
    if looked_up is not None:
        return looked_up
    torchvision = _TORCHVISION.fullmatch(qualified)
    if torchvision:
        return torchvision[1] if torchvision[1][0].islower() else None
    smp = _SMP_MODELS.fullmatch(qualified)
    return _encoder(call) if smp and smp[1][0].isupper() else None


def _looked_up(script: Script, call: ast.Call, qualified: str) -> ast.expr | None:
    """The name in ``models.get_model(name)``, ``models.__dict__[name](...)``, ``getattr(models, name)(...)``."""
    function, home = call.func, "torchvision.models"
    if qualified == "torchvision.models.get_model" and call.args:
        return call.args[0]
    if isinstance(function, ast.Subscript) and script.qualified(function.value) == f"{home}.__dict__":
        return function.slice
    if isinstance(function, ast.Call) and dotted(function.func) == "getattr" and len(function.args) >= 2:
        return function.args[1] if script.qualified(function.args[0]) == home else None
    return None


def _encoder(call: ast.Call) -> ast.expr | str:
    """The encoder of a segmentation model; its decoder follows the same habit, with the same switch."""
    return keyword(call, "encoder_name") or (call.args[0] if call.args else _DEFAULT_ENCODER)


def _decoder(script: Script, call: ast.Call) -> str | None:
    """``Unet`` of ``smp.Unet(encoder)``: its decoder brings BatchNorm behind any encoder, unless it is told not to."""
    smp = _SMP_MODELS.fullmatch(script.qualified(call.func))
    told = any(each.arg is None or each.arg.startswith(("decoder_use_", "decoder_norm")) for each in call.keywords)
    return smp[1] if smp and not told and decoder_with_batch_norm(smp[1]) else None


def has_own_norm(script: Script, call: ast.Call) -> bool:
    """``norm_layer=`` with something that is not BatchNorm, or that the text does not tell."""
    given = keyword(call, "norm_layer")
    return given is not None and not is_batch_norm_class(script, given)


def words_of(script: Script, node: ast.expr, depth: int = _DEPTH) -> list[str]:
    """The words that an expression can stand for: a literal, a constant, a default, an argument of this file."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return [*words_of(script, node.body, depth), *words_of(script, node.orelse, depth)]
    name = dotted(node)
    if not name or not depth:
        return []
    places = bindings(script, name, node)
    if not places and "." in name:
        return _settings(script, name.rpartition(".")[2], depth)
    found: list[str] = []
    for binding in places:
        if binding.kind == "parameter":
            found += _given(script, binding.node, depth)
        if binding.value is not None and binding.kind in ("assign", "parameter"):
            found += words_of(script, binding.value, depth - 1)
    return found


def _given(script: Script, parameter: ast.AST, depth: int) -> list[str]:
    function = script.function(parameter)
    if function is None or not isinstance(parameter, ast.arg):
        return []
    given = [argument_of(call, function, parameter.arg) for call in calls_by_name(script, function)]
    return [text for each in given if isinstance(each, ast.expr) for text in words_of(script, each, depth - 1)]


def _settings(script: Script, attribute: str, depth: int) -> list[str]:
    """``args.arch`` and ``CFG.arch``: the default of an option, the value in a class of settings."""
    found: list[str] = []
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and _is_option(call, attribute):
            default = keyword(call, "default")
            found += words_of(script, default, depth - 1) if default is not None else []
    for node in script.nodes(ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if any(dotted(each) == attribute for each in targets):
                    found += words_of(script, statement.value, depth - 1)
    return found


def _is_option(call: ast.Call, attribute: str) -> bool:
    dest = keyword(call, "dest")
    if isinstance(dest, ast.Constant):
        return dest.value == attribute
    flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(each.lstrip("-").replace("-", "_") == attribute for each in flags)
