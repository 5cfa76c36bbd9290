/** The tab of the Laplacian pyramid: the picture on each grid, and the detail that the next smaller grid cannot hold. */

import { byId, element, paint, saySize, setText, spellSize } from "./elements.js";

const NOTHING = 0.005; // of 255; less is rounding

/** The grids of the pyramid: the network's own, or halves of its only one. */
export function gridsOf(site) {
  const grids = [...site.grids];
  while (site.grids.length === 1 && Math.min(...grids.at(-1)) >= 8 && grids.length < 4) {
    grids.push(grids.at(-1).map((length) => Math.ceil(length / 2)));
  }
  return grids;
}

/** How many times stronger details are shown, so that the strongest one is just not cut off; found once for a picture. */
export function gainFor({ levels }) {
  const strongest = Math.max(1, ...levels.flatMap(({ detail }) => (detail ? [...detail].map(Math.abs) : [])));
  return Math.min(10, Math.max(1, Math.round(1270 / strongest) / 10));
}

/**
 * Shows a pyramid.
 *
 * @param level the highest level that runs, which tells whether one without detail is skipped; null where the network
 *     has one level alone.
 * @param shape height divided by width of the picture.
 */
export function showPyramid({ levels, difference }, level, gain, shape) {
  const last = levels.length - 1;
  byId("pyramid").replaceChildren(
    ...levels.map(({ grid, held, detail }, n) => {
      const strength = detail ? rootMeanSquare(detail) : 0;
      const empty = detail && strength < NOTHING;
      const skipped = level !== null && n < level;
      const verdict = n === last ? "The rest" : empty ? "No detail" : `Detail of ${strength.toFixed(1)}`;
      const run = level === null ? "" : skipped ? ": skipped" : ": runs";
      return element(
        "figure",
        { class: skipped || (level === null && empty) ? "skipped" : "runs" },
        view(held, grid, shape, `The picture at ${saySize(grid)}`),
        detail ? view(detail, grid, shape, `Its detail at ${saySize(grid)}`, { gain, zero: 128 }) : null,
        element("figcaption", {}, element("b", {}, spellSize(grid)), ` ${verdict}${run}`),
      );
    }),
  );
  setText("gain", gain === 1 ? "as strong as it is" : `shown ${gain} times stronger`);
  setText(
    "pyramid-sentence",
    "Detail is given as its root mean square, where white is 255. The lowest picture and all details add up to the " +
      `highest picture again; the largest difference is ${difference < 1e-4 ? "below 0.0001" : difference.toFixed(4)}.`,
  );
}

function view(numbers, grid, shape, words, scale) {
  const canvas = element("canvas", { role: "img", "aria-label": words });
  canvas.style.aspectRatio = `1 / ${shape}`;
  paint(canvas, numbers, grid, scale);
  return canvas;
}

function rootMeanSquare(numbers) {
  return Math.sqrt(numbers.reduce((sum, number) => sum + number * number, 0) / numbers.length);
}
