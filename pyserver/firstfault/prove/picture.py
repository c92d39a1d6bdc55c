"""The target weights of each window as an SVG picture.

Every micro-batch is a bar: as wide as its share of the targets, as high as the weight of one of them, so its area is
its share of the gradient. The dashed line is the weight that every target has in a mean over all of them. A window
where all is right is one flat block that reaches the line; bars that differ from the others are coloured.
"""

import html
from collections.abc import Iterator

from firstfault.prove.measured import Measured
from firstfault.prove.weights import RATIO, Row, Term, terms

_WIDTH, _HEIGHT, _LEFT, _TOP, _BLOCK = 640, 140, 64, 44, 232
_MANY = 8  # windows; nobody compares more by eye
_NARROW = 26  # pixels; a bar below that has no number
_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #333 }
.small { font-size: 11px }
.bar { fill: #4477aa; stroke: #fff } .high { fill: #cc6633 } .dropped { fill: #bbb }
.line { stroke: #333; stroke-dasharray: 5 4 } .axis { stroke: #888 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .bar { stroke: #1e1e1e } .line { stroke: #ddd } .dropped { fill: #666 }
}
"""


def to_svg(measured: Measured) -> str:
    """The picture; it says so where there is nothing to show."""
    shown = [term for window in measured.windows for term in terms(window)][:_MANY]
    height = _TOP + max(len(shown), 1) * _BLOCK
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _LEFT} {height}" role="img">',
        "<title>Weight of one target in each micro-batch</title>",
        f"<style>{_STYLE}</style>",
        _text(_LEFT, 20, "Weight of one target (height) by number of targets (width); the dashed line is a plain mean"),
    ]
    if not shown:
        parts.append(_text(_LEFT, _TOP + 20, "No weights of targets were measured."))
    for number, term in enumerate(shown):
        parts += _term(term, _TOP + number * _BLOCK)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _term(term: Term, top: int) -> Iterator[str]:
    right, mean = 1 / term.counted, abs(term.mass) / term.counted
    highest = max(right, *(abs(row.loss.weight) for row in term.rows))
    name = f"Window {term.window.number + 1}, {term.rows[0].loss.kind} in line {term.line}"
    yield _text(_LEFT, top + 14, f"{name}: ratio {term.ratio:.4g}, weight x targets {term.mass:.4g}")
    base = top + 24 + _HEIGHT
    x = float(_LEFT)
    for row in term.rows:
        width = _WIDTH * row.loss.counted / term.counted
        yield from _bar(row, term, x, base, width, _HEIGHT * abs(row.loss.weight) / highest, mean)
        x += width
    line = base - _HEIGHT * right / highest
    yield f'<line class="line" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{line:.1f}" y2="{line:.1f}"/>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{base}" y2="{base}"/>'
    yield _text(_LEFT - 6, line + 4, f"{right:.3g}", 'class="small" text-anchor="end"')


def _bar(row: Row, term: Term, x: float, base: int, width: float, height: float, mean: float) -> Iterator[str]:
    kind = "dropped" if row.dropped else "high" if abs(row.loss.weight) > RATIO * mean else ""
    rank = f"rank {row.rank}, " if term.window.world > 1 else ""
    told = f"{rank}micro-batch {row.micro_batch + 1}: {row.loss.targets:,} targets of weight {row.loss.weight:.4g}"
    told += ", dropped before the step" if row.dropped else ""
    yield f'<rect class="bar {kind}" x="{x:.1f}" y="{base - height:.1f}" width="{width:.1f}" height="{height:.1f}">'
    yield f"<title>{html.escape(told)}</title></rect>"
    if width >= _NARROW:
        yield _text(x + width / 2, base + 15, f"{row.loss.targets:,}", 'class="small" text-anchor="middle"')


def _text(x: float, y: float, words: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{html.escape(words)}</text>'
