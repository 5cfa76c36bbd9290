/** Sizes: how a picture gets the proportions of the network's grids, and how many samples it has at a resolution. */

/** The size, (height, width), that a picture has after fitting: as `arrn.runtime.aspect.Aspect.frame`. */
export function frameOf(mode, size, grid) {
  if (mode === "stretch") return [...size];
  const shares = size.map((length, axis) => length / grid[axis]);
  if (mode === "pad") {
    const share = Math.max(...shares);
    return size.map((length, axis) => Math.max(length, roundToEven(share * grid[axis])));
  }
  const share = Math.min(...shares);
  return size.map((length, axis) => Math.min(length, Math.max(1, roundToEven(share * grid[axis]))));
}

/** Which of a line's own places stands at each place of the fitted line; beyond the edges it is mirrored. */
export function placesOf(have, want) {
  const before = Math.floor((want - have) / 2);
  return Int32Array.from({ length: want }, (_, place) => {
    const mirrored = (((place - before) % (2 * have)) + 2 * have) % (2 * have);
    return Math.min(mirrored, 2 * have - 1 - mirrored);
  });
}

/** The nearest whole number; of two equally near ones the even one, as Python rounds. */
function roundToEven(number) {
  const below = Math.floor(number);
  const rest = number - below;
  if (rest !== 0.5) return Math.round(number);
  return below % 2 === 0 ? below : below + 1;
}

/** The size of a picture's samples at a resolution: the longest side of the top grid has that many. */
export function sizeAt(resolution, top, frame) {
  const longest = Math.max(...top);
  return top.map((length, axis) => {
    const most = Math.min(length, frame[axis]);
    return Math.min(most, Math.max(1, Math.round((resolution * length) / longest)));
  });
}

/** The highest resolution that a picture of this size has. */
export function highestResolution(top, frame) {
  const longest = Math.max(...top);
  const shares = top.map((length, axis) => Math.min(length, frame[axis]) / length);
  return Math.max(1, Math.min(longest, Math.ceil(longest * Math.max(...shares) - 1e-9)));
}

/** Resolutions for the chart, highest first: all, or about `most` of many, grids among them. */
export function resolutionsFor(highest, grids, top, most = 32) {
  const step = Math.max(1, Math.ceil(highest / most));
  const longest = top.indexOf(Math.max(...top));
  const wanted = new Set(grids.map((grid) => grid[longest]).filter((length) => length <= highest));
  for (let resolution = highest; resolution >= 1; resolution -= step) wanted.add(resolution);
  return [...wanted].sort((a, b) => b - a);
}
