"""The report of an evaluation, for a browser: what `arrn evaluate` writes beside its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from arrn.data.source import word_for
from arrn.evaluation import Mistake, Report, is_uneven, wilson_interval
from arrn.pages.charts import Series, bar, ladder, line_chart
from arrn.pages.markup import Content, Markup, choice, document, element, join, table
from arrn.pages.thumbnails import thumbnail
from arrn.pages.wording import accuracy_text, series_of, spell_count, spell_resolution
from arrn.provenance import machine_of

_MATRIX = 24  # classes up to which the confusion matrix fits a page
_LISTED = 60  # classes up to which each has a line; of more classes the worst and the best are listed
_SOME = 24  # of each of these
_PAIRS, _MANY_PAIRS = 8, 25  # confusions listed beside a matrix, and without one


def evaluation_page(
    report: Report,
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    mixed: Mapping[str, Mapping[str, Any]] | None = None,
) -> Markup:
    """The page of an evaluation that was made with details.

    Args:
        report: of `arrn.runs.evaluate_run` with `mistakes`.
        lines: its results by the name of a line, lowest resolution first.
        mixed: the results of samples as they come, by the same names; none where all samples are of one size.
    """
    return _Page(report, lines, mixed or {}).whole()


class _Page:
    """What the sections share."""

    def __init__(
        self,
        report: Report,
        lines: Mapping[str, Sequence[Mapping[str, Any]]],
        mixed: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.report = report
        self.facts = report.facts
        # All lines are of one network, which the title names.
        self.lines = {_short(label, report.model): points for label, points in lines.items()}
        self.mixed = {_short(label, report.model): result for label, result in mixed.items()}
        self.names: Sequence[str] = self.facts["class_names"]
        self.words = f"{word_for(self.facts['axes'])}s"
        keys = [(entry["resolution"], entry["adapt"], entry["policy"]) for entry in self.facts["by_class"]]
        by_setting = {(r["resolution"], r["adapt"], r["policy"]): r for r in report.results}
        self.leading = [by_setting[key] for key in keys]

    def spell(self, resolution: int | None) -> str:
        return spell_resolution(resolution, self.facts["axes"], self.facts["window"])

    def at(self, resolution: int | None) -> str:
        return f"{'' if resolution is None else 'at '}{self.spell(resolution)}"

    def whole(self) -> Markup:
        report, facts = self.report, self.facts
        total = self.leading[0]["total"]
        what = f"{report.model} on {report.dataset}, {facts['split']} split of {total:,} {self.words}."
        remarks = list(facts["remarks"])
        if facts["skipped"]:
            remarks.insert(0, f"{facts['skipped']} bad {self.words} were skipped")
        resampler = facts["resampler"] if isinstance(facts["resampler"], str) else "recorded"
        note = f"In %, with 95% intervals (Wilson). Lower resolutions: the {resampler} resampler."
        if self.mixed:
            note += f" Where a row names a resolution, smaller {self.words} stay as they are."
        if self.uneven():
            note += " Balanced: the mean over the classes, which are uneven."
        origin = facts["provenance"]
        return document(
            f"{report.model} on {report.dataset}",
            element("h1", self.headline()),
            element("p", what, class_="lead"),
            *(element("p", f"{remark}.") for remark in remarks),
            self.key_facts(),
            element("h2", self.over()),
            self.chart(),
            self.accuracies(),
            element("p", note, class_="soft"),
            *self.levels(),
            element("h2", "What it cost"),
            *self.cost(),
            element("h2", "Right and wrong, class by class"),
            choice("r", "at", {self.spell(entry["resolution"]): self.classes(entry) for entry in facts["by_class"]}),
            element("footer", f"Evaluated with arrn {origin['arrn']} on {machine_of(origin)}."),
        )

    def headline(self) -> str:
        first, last = self.leading[0], self.leading[-1]
        told = f"{100 * first['accuracy']:.1f}% right {self.at(first['resolution'])}"
        if last is first:
            return told
        return f"{told}, {100 * last['accuracy']:.1f}% at {self.spell(last['resolution'])}"

    def key_facts(self) -> Markup:
        first, last = self.leading[0], self.leading[-1]
        found = [(f"{first['correct']:,} of {first['total']:,}", f"are right: {accuracy_text(first)}")]
        agreements = [(r["agreement"], r["total"]) for r in self.leading if "agreement" in r]
        if agreements:
            changed = sum(round((1 - share) * count) for share, count in agreements)
            answers = sum(count for _, count in agreements)
            found.append((f"{changed:,} of {answers:,}", "answers were changed by skipping levels"))
        counts = {entry["resolution"]: entry["multiply_adds"] for entry in self.facts["cost"]}
        low = counts.get(last["resolution"])
        if low is not None:
            what = f"multiply-adds for one of the {self.words}, {self.at(last['resolution'])}"
            found.append((spell_count(low), what))
        if low and max(counts.values()) > 1.05 * low:
            dearest = max(counts, key=lambda resolution: counts[resolution])
            cases = self.words if dearest is None else f"the same {self.words}"
            found.append((f"{counts[dearest] / low:.1f} times", f"as many for {cases} {self.at(dearest)}"))
        return element(
            "div", *(element("div", element("b", big), element("span", small)) for big, small in found), class_="facts"
        )

    def chart(self) -> Markup:
        series = []
        for label in dict.fromkeys([*self.mixed, *self.lines]):
            values = list(series_of(label, self.lines.get(label, ())).values)
            if label in self.mixed:
                values = [*series_of(label, [self.mixed[label]]).values, *values]
            series.append(Series(label, tuple(values)))
        window = self.facts["window"] if self.facts["axes"] == 1 else None
        return line_chart(series, self.spell, self.over(), lambda n: f"{n / (window or 1):g}")

    def over(self) -> str:
        """What the chart shows."""
        in_hz = self.facts["axes"] == 1 and self.facts["window"] is not None
        return "Accuracy over the sampling rate in Hz" if in_hz else "Accuracy over resolution"

    def accuracies(self) -> Markup:
        uneven = self.uneven()

        def cell(result: Mapping[str, Any] | None) -> Content:
            if result is None:
                return None
            low, high = (100 * bound for bound in result["interval"])
            told = [f"{low:.1f} to {high:.1f}"]
            if uneven:
                told.append(f"balanced {100 * result['balanced_accuracy']:.1f}")
            return join([f"{100 * result['accuracy']:.1f}", *(element("small", line) for line in told)])

        labels = list(dict.fromkeys([*self.mixed, *self.lines]))
        sizes = sorted({p["resolution"] for points in self.lines.values() for p in points}, reverse=True)
        rows: list[list[Content]] = []
        if self.mixed:
            rows.append([self.spell(None), *(cell(self.mixed.get(label)) for label in labels)])
        for size in sizes:
            points = [next((p for p in self.lines.get(label, ()) if p["resolution"] == size), None) for label in labels]
            rows.append([self.spell(size), *map(cell, points)])
        return table(["", *labels], rows, "leading" if self.mixed else None)

    def uneven(self) -> bool:
        return is_uneven(self.facts["class_counts"])

    def levels(self) -> list[Markup]:
        """For samples of differing sizes, as they come: how each level did."""
        first = self.leading[0]
        if first["resolution"] is not None:
            return []
        rows = []
        for level in first["levels"]:
            low, high = wilson_interval(level["correct"], level["total"])
            told = {"accuracy": level["correct"] / level["total"], "interval": (low, high)}
            rows.append([level["grid"], f"{level['total']:,}", accuracy_text(told)])
        return [
            element("h3", f"The {self.words} as they come, by the level that fits them"),
            table(["level", self.words, "right"], rows),
        ]

    def cost(self) -> list[Markup]:
        entries = self.facts["cost"]
        if not entries:
            return [element("p", "Not known: the network looks at the values of its input, so nothing was counted.")]
        most = max([entry["multiply_adds"] for entry in entries] + [entry["full"] or 0 for entry in entries])
        sentence = f"Multiply-adds of the network for one of the {self.words}, convolutions and matrix products."
        grids: Sequence[str] = self.facts["grids"]
        if not grids:
            rows = [
                [self.spell(e["resolution"]), bar(e["multiply_adds"] / max(1, most), spell_count(e["multiply_adds"]))]
                for e in entries
            ]
            return [element("p", sentence), table(["", "multiply-adds"], rows)]
        steps: list[tuple[Content, int, Content]] = []
        for entry, result in zip(entries, self.leading, strict=True):
            entered = max(result["levels"], key=lambda level: level["total"])["grid"]
            place = grids.index(entered) if entered in grids else 0
            steps.append((self.spell(entry["resolution"]), place, spell_count(entry["multiply_adds"])))
        several = f" These are of several sizes: a row has their mean, and the level that most {self.words} enter on."
        return [
            element("p", sentence, several if self.leading[0]["resolution"] is None else None),
            ladder(grids, steps),
        ]

    def classes(self, entry: Mapping[str, Any]) -> Markup:
        worst = [mistake for mistake in self.report.mistakes if mistake.setting.resolution == entry["resolution"]]
        return join([*self.confusions(entry), *self.accuracy_by_class(entry), *self.mistakes(worst)])

    def confusions(self, entry: Mapping[str, Any]) -> list[Markup]:
        matrix = entry.get("confusion")
        if matrix is None:
            pairs = entry["confused"]
        else:
            pairs = [[t, a, n] for t, row in enumerate(matrix) for a, n in enumerate(row) if t != a and n]
            pairs.sort(key=lambda pair: -pair[2])
        if not pairs:
            return [element("h3", "Confusions"), element("p", "There are none: every answer is right.")]
        shown = matrix if matrix is not None and len(matrix) <= _MATRIX else None
        limit = _MANY_PAIRS if shown is None else _PAIRS
        counts = self.facts["class_counts"]
        rows = []
        for truth, answer, number in pairs[:limit]:
            share = number / max(1, counts[truth])
            rows.append([self.names[truth], self.names[answer], bar(share, f"{number:,} ({100 * share:.1f}%)")])
        listed = table(["class", "taken for", f"of the {self.words} of the class"], rows)
        if shown is None:
            return [element("h3", f"The {len(rows)} most frequent confusions"), listed]
        left = element("div", element("h3", "Confusion matrix"), self.matrix(shown))
        right = element("div", element("h3", "The most frequent confusions"), listed)
        return [element("div", left, right, class_="beside")]

    def matrix(self, matrix: Sequence[Sequence[int]]) -> Markup:
        rows: list[Markup] = []
        for truth, row in enumerate(matrix):
            total = max(1, sum(row))
            cells = []
            for answer, number in enumerate(row):
                share = number / total
                kinds = ["wrong"] if truth != answer else ["strong"] if share > 0.55 else []
                words = f"{self.names[truth]} taken for {self.names[answer]}: {number:,} of {total:,}"
                cells.append(
                    element(
                        "td",
                        f"{number:,}" if number else "",
                        style=f"--share:{share:.3f}",
                        title=words if truth != answer else f"{self.names[truth]}: {number:,} of {total:,} right",
                        class_=" ".join(kinds) or None,
                    )
                )
            rows.append(element("tr", element("th", self.names[truth], scope="row", title=self.names[truth]), *cells))
        head = element("tr", element("th", ""), *(element("th", name, scope="col") for name in self.names))
        whole = element("table", element("thead", head), element("tbody", *rows), class_="matrix")
        caption = element(
            "p", "A row is a true class, a column an answer; colours are shares of the row.", class_="soft"
        )
        scroll = element("div", whole, class_="scroll", tabindex="0", role="region", aria_label="confusion matrix")
        return join([caption, scroll])

    def accuracy_by_class(self, entry: Mapping[str, Any]) -> list[Markup]:
        counts, right = self.facts["class_counts"], entry["correct"]
        tried = [label for label, count in enumerate(counts) if count]
        order = sorted(tried, key=lambda label: right[label] / counts[label])

        def line(label: int) -> Markup:
            share = right[label] / counts[label]
            text = f"{100 * share:.1f}% of {counts[label]:,}"
            name = element("span", self.names[label], title=self.names[label])
            return element("li", name, bar(share, text))

        def lines(chosen: Sequence[int]) -> Markup:
            return element("ul", *map(line, chosen), class_="classes")

        if len(order) <= _LISTED:
            return [element("h3", "Accuracy of each class, the worst first"), lines(order)]
        return [
            element("h3", f"The {_SOME} worst of {len(order):,} classes"),
            lines(order[:_SOME]),
            element("h3", f"The {_SOME} best"),
            lines(order[-_SOME:][::-1]),
        ]

    def mistakes(self, worst: Sequence[Mistake]) -> list[Markup]:
        if not worst:
            return []
        cards = []
        for mistake in worst:
            truth, answer = self.names[mistake.truth], self.names[mistake.answer]
            cards.append(
                element(
                    "li",
                    thumbnail(mistake.sample, f"{truth}, taken for {answer}"),
                    element("b", truth),
                    element("br"),
                    "taken for ",
                    element("b", answer, class_="wrong"),
                    f", {100 * mistake.probability:.0f}%",
                    element("small", "/".join(PurePath(mistake.where).parts[-2:]), style="white-space:normal"),
                )
            )
        title = f"The worst mistakes: the {len(cards)} wrong answers that the network was surest of"
        return [element("h3", title), element("ul", *cards, class_="mistakes")]


def _short(label: str, model: str) -> str:
    return label.removeprefix(f"{model}, ")
