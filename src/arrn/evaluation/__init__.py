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
from arrn.evaluation.mistakes import MATRIX_UP_TO, Mistake, by_class, leading_answers, sample_order, worst_mistakes
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
    "MATRIX_UP_TO",
    "RESAMPLERS",
    "AdaptationGap",
    "Answers",
    "Combination",
    "Decision",
    "Mistake",
    "Report",
    "Resampler",
    "Setting",
    "Verdict",
    "adaptation_gap",
    "affordable_batch",
    "by_class",
    "check_dual_effect",
    "check_resampler",
    "decision_tree",
    "default_resolutions",
    "effect_grows",
    "evaluate",
    "leading_answers",
    "lower",
    "make_report",
    "report_from",
    "sample_order",
    "settings_for",
    "wilson_interval",
    "worst_mistakes",
    "write_report",
]
