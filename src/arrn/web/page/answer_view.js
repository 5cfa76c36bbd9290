/** The tab of the answer: the classes with their probabilities, what the answer took, and the levels that ran. */

import { byId, element, saySize, setText, shownName, spellCount, spellShare, spellSize, spellTime } from "./elements.js";

const SHOWN = 5; // classes

/** The name of a class; its number where the network names none. */
export function nameOf(site, label) {
  return site.classes ? shownName(site.classes[label], 40) : `class ${label}`;
}

/** The number of the most probable class. */
export function bestOf(probabilities) {
  return probabilities.indexOf(Math.max(...probabilities));
}

/** Shows an answer of the network. */
export function showAnswer(site, answer) {
  const { probabilities, level, milliseconds, size } = answer;
  const best = bestOf(probabilities);
  setText("winner", nameOf(site, best));
  showShare(byId("winner-probability"), probabilities[best]);
  showProbabilities(site, probabilities);

  const facts = [
    ["Time", `${spellTime(milliseconds)} ms`, "for one run of the network"],
    ["Multiply-adds", spellCount(site.costs[level]), costShare(site, level)],
    site.grids.length > 1 && ["Levels skipped", `${level} of ${site.grids.length}`, skippedRemark(site, level)],
    accuracyAt(site, size),
  ];
  byId("facts").replaceChildren(
    ...facts.filter(Boolean).map(([name, value, remark]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, element("b", {}, value), element("span", {}, remark))),
    ),
  );
  showLadder(site, level, size);
  const skipped = site.grids.length > 1 ? `, ${level} of ${site.grids.length} levels skipped` : "";
  setText("glance", `${nameOf(site, best)} ${spellShare(probabilities[best])}, ${spellTime(milliseconds)} ms${skipped}`);
}

/** Shows a probability, and keeps it exactly for programs that read the page. */
export function showShare(place, share) {
  place.value = String(share);
  place.textContent = spellShare(share);
}

function showProbabilities(site, probabilities) {
  const order = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, SHOWN);
  byId("probabilities").replaceChildren(
    ...order.map((label) => {
      const share = element("data");
      showShare(share, probabilities[label]);
      const bar = element("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", probabilities[label]);
      return element("li", {}, element("span", { class: "name" }, nameOf(site, label)), bar, share);
    }),
  );
}

function skippedRemark(site, level) {
  if (level === 0) return mayStop(site, level) ? "the lower ones run if needed" : "all levels run";
  return level === 1 ? "the highest does not run" : "the highest ones do not run";
}

function costShare(site, level) {
  if (mayStop(site, level)) return `${spellCount(site.most_costs[level])} for a flat picture`;
  return level === 0 ? "all of the network" : `${Math.round((100 * site.costs[level]) / site.costs[0])}% of the whole network`;
}

function accuracyAt(site, size) {
  const found = site.accuracy?.results.find(({ resolution }) => size.every((length) => length === resolution));
  if (!found) return null;
  const images = `${found.total.toLocaleString("en")} test images of ${shownName(site.accuracy.dataset, 24)}`;
  return ["Accuracy", spellShare(found.accuracy), `on ${images} at ${spellSize(size)}`];
}

function showLadder(site, level, size) {
  const share = (n) => site.most_costs[n] - (site.most_costs[n + 1] ?? 0);
  byId("ladder").replaceChildren(
    ...site.grids.map((grid, n) => {
      const runs = n >= level;
      const step = element(
        "span",
        { class: "step" },
        element("b", {}, spellSize(grid)),
        element("span", {}, !runs ? "skipped" : n > level && mayStop(site, level) ? "runs if needed" : "runs"),
      );
      step.style.setProperty("--height", Math.sqrt(grid[0] / site.grids[0][0]));
      const cost = share(n) > 0 ? element("small", {}, spellCount(share(n))) : null;
      return element("li", { class: runs ? "runs" : "skipped", "data-enters": n === level }, step, cost);
    }),
  );
  setText("ladder-sentence", ladderSentence(site, level, size));
}

/** Whether levels below the one where the picture enters do not run for pictures with details. */
function mayStop(site, level) {
  return site.costs[level] < site.most_costs[level];
}

function ladderSentence(site, level, size) {
  const grid = site.grids[level];
  const same = size.every((length, axis) => length === grid[axis]);
  const larger = size.some((length, axis) => length > grid[axis]);
  const how = same ? "is on the grid" : larger ? "is smoothed down to the grid" : "is interpolated up to the grid";
  const cost = site.grids.length > 1 ? " The numbers below the levels are their multiply-adds." : "";
  const needed = mayStop(site, level) ? " The levels below run only if the picture has too few details for that one." : "";
  return `The picture of ${spellSize(size)} ${how} of the level ${spellSize(grid)}, and enters there.${needed}${cost}`;
}

/** The answer in a sentence, for those who hear the page. */
export function sayAnswer(site, { probabilities, level, size }) {
  const best = bestOf(probabilities);
  const skipped = site.grids.length > 1 ? `; ${level} of ${site.grids.length} levels skipped` : "";
  return `At ${saySize(size)}: ${nameOf(site, best)}, ${Math.round(100 * probabilities[best])} percent${skipped}.`;
}

/** Shows the chart's numbers as a table, highest resolution first. */
export function showTable(site, answers) {
  byId("table").replaceChildren(
    ...answers.map(({ probabilities, level, milliseconds, size }) => {
      const best = bestOf(probabilities);
      const share = element("data");
      showShare(share, probabilities[best]);
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, spellSize(size)),
        element("td", {}, nameOf(site, best)),
        element("td", {}, share),
        element("td", {}, spellSize(site.grids[level])),
        element("td", {}, spellTime(milliseconds)),
        element("td", {}, spellCount(site.costs[level])),
      );
    }),
  );
}
