"""The texts of the bench's bar about the present plan: coverage, scores, speed."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from qdq_widgets.curves import interval, is_share
from qdq_widgets.effect_estimates import Effect, Figure
from qdq_widgets.pane import percent
from qdq_widgets.snapshots import CALIBRATED, CORRECTED, FINE_TUNED
from qdq_widgets.targets import pair_counts, verdicts
from qdq_widgets.variants import coverage

_STAGES = {CALIBRATED: "PTQ", CORRECTED: "corrected", FINE_TUNED: "QAT"}
_BEFORE = "\u00a0before"  # after the name of a score of a former plan


def summary_html(bench: Any) -> str:
    """Return the bar's text about the present plan, as HTML."""
    shares = is_share(bench.curves.metric)
    scores = "".join(_span(text, title, shares) for text, title in (*_scores(bench), *_certainty(bench)))
    return "".join(
        [
            *(_chip(text, title) for text, title in _plan(bench)),
            f'<span class="qdq-chip qdq-scores">{scores}</span>' if scores else "",
            *(_chip(text, title) for text, title in _speed(bench)),
        ]
    )


def summary_texts(bench: Any) -> list[str]:
    """Return the bar's texts about the present plan, without HTML."""
    return [text for text, _ in (*_plan(bench), *_scores(bench), *_speed(bench))]


def effect_html(effect: Effect | None) -> str:
    """Return the effect of the last change of the plan, as HTML; empty if nothing is known."""
    figures = [] if effect is None else list(_effect_figures(effect))
    if effect is None or not figures:
        return ""
    estimated = any(not figure.measured for *_, figure in figures)
    word = "measuring …" if effect.state == "measuring" else "estimated" if estimated else "measured"
    said = [
        f"{name}: {'measured' if figure.measured else 'an estimate'}, {figure.basis}" for name, _, _, figure in figures
    ]
    said += [effect.note] if effect.note else []
    title = html.escape("\n".join([effect.label, *said]), quote=True)
    parts = " ".join(f'<span class="{look}">{html.escape(text)}</span>' for _, text, look, _ in figures)
    look = "qdq-chip qdq-effect" + (" qdq-estimate" if estimated else "")
    return f'<span class="{look}" title="{title}"><b>this change</b> <i>{word}</i> {parts}</span>'


def _effect_figures(effect: Effect) -> Iterator[tuple[str, str, str, Figure]]:
    """Yield name, text, style class and figure of every known effect of a change."""
    metric = {"accuracy": "accuracy", "sqnr": "SQNR"}.get(effect.metric, effect.metric)
    for name, figure, better_up in (
        (metric, effect.score, effect.higher_is_better),
        ("size", effect.size, False),
        ("time", effect.time, False),
    ):
        if figure is None or figure.change is None:
            continue
        text = _changed(figure.change, figure.unit) + _relative(figure)
        good = figure.change != 0 and (figure.change > 0) == better_up
        look = "qdq-same" if text.startswith("±") else "qdq-better" if good else "qdq-worse"
        yield name, f"{name} {'' if figure.measured else '≈ '}{text}", look, figure


def _relative(figure: Figure) -> str:
    """Return a measured change of a size or time in percent of the value before; empty if it rounds to 0."""
    # Equal value and change: the value before was 0, of which there are no percents.
    if figure.unit not in ("B", "ms") or figure.value is None or figure.change is None or figure.value == figure.change:
        return ""
    percents = f"{100 * figure.change / (figure.value - figure.change):+.1f}"
    return "" if float(percents) == 0 else f" ({percents} %)".replace("-", "\u2212")


def _changed(change: float, unit: str) -> str:
    """Return a change with its sign; "±0" if it rounds to 0."""
    if unit == "B":
        number, unit = (f"{change / 1024:+.1f}", "KiB") if abs(change) >= 1024 else (f"{change:+.0f}", "B")
    elif unit == "points":
        number = f"{change:+.1f}"
    else:
        number = f"{change:+.2g}" if abs(change) < 10 else f"{change:+.1f}"
    return f"±0 {unit}" if float(number) == 0 else f"{number} {unit}".replace("-", "\u2212")


def _plan(bench: Any) -> Iterator[tuple[str, str]]:
    whole, computing = coverage(bench.plan)
    explanation, unknown = verdicts(bench)
    pairs, title = pair_counts(bench.plan)
    yield f"{pairs} Q/DQ pairs", title
    title = "in the plan: layers with a kernel, and layers that merge tensors"
    yield f"{whole} of {computing} computing layers quantized", title
    if not unknown:
        title = (
            "the share of the multiplications that the target computes in integers; the Target pane says why not the "
            "others"
        )
        yield f"{percent(explanation.coverage['macs'])} of the work in INT8", title
    yield bench.stage, bench.stage_note


def _scores(bench: Any) -> Iterator[tuple[str, str]]:
    """Yield the scores of the present plan beside the float model's."""
    curves, known = bench.curves, bench.snapshot.scores
    metric = curves.metric
    if curves.fp32 is None or metric not in curves.fp32.metrics:
        return
    base, count = curves.fp32.metrics[metric], bench.scored_samples
    yield f"FP32 {_shown(base, metric)}", _about(base, metric, count)
    label, former = bench.effects.former
    for stage, name in _STAGES.items():
        scores = known.get(stage) or former.get(stage)
        value = None if scores is None else scores.metrics.get(metric)
        if value is not None:
            difference = f"{100 * (value - base):+.1f}" if is_share(metric) else f"{value - base:+.4g}"
            of = "" if stage in known else _BEFORE
            note = f"The present plan is not scored yet. Before {label!r}: " if of else ""
            yield f"{name}{of} {_shown(value, metric)} ({difference})", note + _about(value, metric, count)


def _certainty(bench: Any) -> Iterator[tuple[str, str]]:
    """Yield the number of scored samples, and half the width of the 95 % interval of the float model's share."""
    curves, count = bench.curves, bench.scored_samples
    base = None if curves.fp32 is None else curves.fp32.metrics.get(curves.metric)
    if base is None or count is None or not is_share(curves.metric):
        return
    low, high = interval(base, count)
    yield f"n = {count}, ± {50 * (high - low):.1f}", _about(base, curves.metric, count)


def _speed(bench: Any) -> Iterator[tuple[str, str]]:
    report = bench.latency
    if report is not None:
        low, high = report.speedup_interval
        title = (
            f"the plan's file in {report.engine} on this computer, beside the float file; {report.interval_name} "
            f"{low:.2f} to {high:.2f}; the Speed pane has the layers"
        )
        yield f"x{report.speedup:.2f}, {report.total_ms:.3g} ms", title


def _shown(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if is_share(metric) else f"{value:.4g}"


def _about(value: float, metric: str, count: int | None) -> str:
    if count is None:
        return f"{metric} on the validation data"
    said = f"{metric} on {count} validation samples"
    if not is_share(metric):
        return said
    low, high = interval(value, count)
    return f"{said}: one of them is {100 / count:.2g} points; 95 % interval {100 * low:.1f} to {100 * high:.1f}"


def _span(text: str, title: str, judges: bool) -> str:
    """Return one score as HTML; the difference to the float model is coloured if `judges` is set."""
    name, _, rest = text.partition(" ")
    value, _, change = rest.rstrip(")").partition(" (")
    judged = float(change) if change and judges else 0.0
    look = "better" if judged > 0 else "worse" if judged < 0 else "same"
    shown = f' <i class="qdq-{look}">{html.escape(change)}</i>'.replace(">-", ">\u2212") if change else ""
    title = html.escape(title, quote=True)
    former = ' class="qdq-former"' if name.endswith(_BEFORE) else ""
    return f'<span{former} title="{title}"><small>{html.escape(name)}</small> <b>{html.escape(value)}</b>{shown}</span>'


def _chip(text: str, title: str) -> str:
    return f'<span class="qdq-chip" title="{html.escape(title, quote=True)}">{html.escape(text)}</span>'
