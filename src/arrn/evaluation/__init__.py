"""How good a network is, at every resolution, and what it answers."""

from arrn.evaluation.accuracy import (
    RESAMPLERS,
    Answers,
    Resampler,
    Setting,
    affordable_batch,
    check_resampler,
    evaluate,
    lower,
)
from arrn.evaluation.comparisons import (
    AdaptationGap,
    Combination,
    Decision,
    Verdict,
    adaptation_gap,
    check_dual_effect,
    decision_tree,
    effect_grows,
)
from arrn.evaluation.report import (
    Report,
    default_resolutions,
    make_report,
    report_from,
    settings_for,
    wilson_interval,
    write_report,
)

__all__ = [
    "RESAMPLERS",
    "AdaptationGap",
    "Answers",
    "Combination",
    "Decision",
    "Report",
    "Resampler",
    "Setting",
    "Verdict",
    "adaptation_gap",
    "affordable_batch",
    "check_dual_effect",
    "check_resampler",
    "decision_tree",
    "default_resolutions",
    "effect_grows",
    "evaluate",
    "lower",
    "make_report",
    "report_from",
    "settings_for",
    "wilson_interval",
    "write_report",
]
