/** The chart of answers and times over all resolutions. */

import { bestOf, nameOf } from "./answer_view.js";
import { drawn, element, saySize, spellSize, spellTime } from "./elements.js";

const HEIGHTS = { answers: 116, gap: 30, times: 84, below: 40 };
const LEFT = 42;
const RIGHT = 8;
const TOP = 20;
const COLOURS = 5; // in the palette; the last one is for all further classes

/**
 * Draws the chart into an element.
 *
 * @param answers one for each resolution that is known: resolution, probabilities, level, milliseconds, size.
 * @param highest the highest resolution of the picture.
 * @param current the resolution of the slider.
 */
export function drawChart(place, site, answers, highest, current) {
  const width = Math.max(260, place.clientWidth);
  const sorted = [...answers].sort((a, b) => a.resolution - b.resolution);
  if (sorted.length === 0) return place.replaceChildren();
  const step = (width - LEFT - RIGHT) / highest;
  const colours = colourClasses(sorted);
  const frame = { width, step, sorted, highest, left: (resolution) => LEFT + step * (resolution - 1) };
  const height = TOP + HEIGHTS.answers + HEIGHTS.gap + HEIGHTS.times + HEIGHTS.below;
  const picture = drawn(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": describe(site, sorted) },
    marker(frame, current, height),
    ...answerBars(frame, site, colours),
    ...timeLine(frame),
    ...levelStrip(frame, site, height),
  );
  place.replaceChildren(picture, legend(site, colours));
}

/** The resolution at a place of the chart, for clicks. */
export function resolutionAt(place, clientX, highest) {
  const box = place.getBoundingClientRect();
  const share = (clientX - box.left - LEFT) / (Math.max(260, place.clientWidth) - LEFT - RIGHT);
  return share < 0 || share > 1 ? null : Math.min(highest, 1 + Math.floor(share * highest));
}

/** A colour for each class that wins somewhere: the answer at the highest resolution has the first one. */
function colourClasses(sorted) {
  const colours = new Map();
  for (const { probabilities } of [...sorted].reverse()) {
    const best = bestOf(probabilities);
    if (!colours.has(best)) colours.set(best, Math.min(colours.size, COLOURS - 1));
  }
  return colours;
}

function marker({ step, left }, current, height) {
  const bottom = height - HEIGHTS.below;
  return drawn("rect", { class: "now", x: left(current), y: TOP - 4, width: Math.max(2, step), height: bottom - TOP + 8, rx: 3 });
}

/** From each resolution to the next one that was measured, so that gaps of large networks are filled. */
function spanOf({ sorted, left, step }, n) {
  const from = n === 0 ? sorted[0].resolution : sorted[n - 1].resolution + 1;
  return [left(from), left(sorted[n].resolution) + step];
}

function answerBars(frame, site, colours) {
  const bottom = TOP + HEIGHTS.answers;
  const parts = [heading("Probability of the answer"), ...scale(frame, [0, 0.5, 1], (share) => bottom - share * HEIGHTS.answers, (share) => `${100 * share}%`)];
  frame.sorted.forEach(({ probabilities }, n) => {
    const best = bestOf(probabilities);
    const [from, to] = spanOf(frame, n);
    const tall = probabilities[best] * HEIGHTS.answers;
    const pad = frame.step > 5 ? 1 : 0;
    parts.push(drawn("rect", { class: `answer colour-${colours.get(best)}`, x: from + pad, y: bottom - tall, width: to - from - 2 * pad, height: tall }));
  });
  return parts;

  function heading(text) {
    return drawn("text", { class: "heading", x: LEFT, y: TOP - 8 }, text);
  }
}

function timeLine(frame) {
  const top = TOP + HEIGHTS.answers + HEIGHTS.gap;
  const bottom = top + HEIGHTS.times;
  const most = niceCeiling(Math.max(...frame.sorted.map(({ milliseconds }) => milliseconds)));
  const y = (milliseconds) => bottom - (milliseconds / most) * HEIGHTS.times;
  const line = frame.sorted.map(({ milliseconds }, n) => {
    const [from, to] = spanOf(frame, n);
    return `${from.toFixed(1)} ${y(milliseconds).toFixed(1)} ${to.toFixed(1)} ${y(milliseconds).toFixed(1)}`;
  });
  return [
    drawn("text", { class: "heading", x: LEFT, y: top - 8 }, "Time in milliseconds"),
    ...scale(frame, [0, most / 2, most], y, (value) => String(Number(value.toPrecision(3)))),
    drawn("polyline", { class: "time", points: line.join(" ") }),
  ];
}

function scale({ width }, values, y, spell) {
  return values.flatMap((value) => [
    drawn("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    drawn("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, spell(value)),
  ]);
}

/** Below the axis: resolutions, and where another level becomes the highest that runs. */
function levelStrip({ sorted, left, step, highest, width }, site, height) {
  const axis = height - HEIGHTS.below;
  const parts = [];
  const ends = new Set([1, highest]);
  sorted.forEach((answer, n) => {
    const next = sorted[n + 1];
    if (!next || next.level === answer.level) return;
    const x = left(answer.resolution) + step;
    ends.add(answer.resolution);
    parts.push(drawn("line", { class: "boundary", x1: x, x2: x, y1: TOP - 4, y2: axis + 4 }));
  });
  let free = Infinity;
  for (const resolution of [...ends].sort((a, b) => b - a)) {
    const x = left(resolution) + step / 2;
    if (free - x < 22) continue;
    free = x;
    parts.push(drawn("text", { class: "tick", x, y: axis + 17, "text-anchor": "middle" }, String(resolution)));
  }
  const words = site.grids.length > 1 ? "Resolution (the level changes at dashed lines)" : "Resolution";
  parts.push(drawn("text", { class: "tick", x: width / 2, y: axis + 35, "text-anchor": "middle" }, words));
  return parts;
}

function legend(site, colours) {
  const keys = [...colours].map(([label, colour]) =>
    element("li", {}, element("i", { class: `colour-${colour}`, "aria-hidden": "true" }), nameOf(site, label)),
  );
  return element("ul", { class: "legend", "aria-label": "Answers in the chart" }, ...keys);
}

/** The smallest of 1, 2, 4, 5 or 10 times a power of ten that is not below a number. */
function niceCeiling(number) {
  const power = 10 ** Math.floor(Math.log10(Math.max(number, 1e-3)));
  return power * [1, 2, 4, 5, 10].find((factor) => factor * power >= number * 0.999);
}

/** The chart in words. */
function describe(site, sorted) {
  const runs = [];
  for (const answer of [...sorted].reverse()) {
    const name = nameOf(site, bestOf(answer.probabilities));
    if (runs.at(-1)?.name === name) runs.at(-1).to = answer.size;
    else runs.push({ name, from: answer.size, to: answer.size });
  }
  const spans = runs.map(({ name, from, to }) =>
    spellSize(from) === spellSize(to) ? `${name} at ${saySize(from)}` : `${name} from ${saySize(from)} down to ${saySize(to)}`,
  );
  const times = sorted.map(({ milliseconds }) => milliseconds);
  const span = `${spellTime(Math.min(...times))} to ${spellTime(Math.max(...times))} milliseconds`;
  return `Answers: ${spans.join("; ")}. Times: ${span}.`;
}
