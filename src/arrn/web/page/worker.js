/** Runs the network beside the page, by ONNX Runtime. Every request is answered in turn by a message of its id. */

import { frameOf, placesOf } from "./framing.js";

const STRIP = 2 ** 21; // pixels of a large picture that are resampled at once
const SCRIPTS = { wasm: "./runtime/ort.wasm.js", webgpu: "./runtime/ort.webgpu.js" };
const PROGRAMS = { wasm: "ort-wasm-simd-threaded.wasm", webgpu: "ort-wasm-simd-threaded.asyncify.wasm" };

let runtime;
let site;
let network;
let resampler;
let picture; // its samples on the network's highest grid, or on its own where that is smaller

/** Loads the runtime and the two files of the network. */
async function start({ described, backend }) {
  site = described;
  runtime = await import(SCRIPTS[backend]);
  runtime.env.logLevel = "error";
  runtime.env.wasm.numThreads = 1; // more need headers that most servers do not send
  runtime.env.wasm.wasmPaths = { wasm: new URL(`./runtime/${PROGRAMS[backend]}`, self.location.href).href };
  const options = { executionProviders: [backend], logSeverityLevel: 3 };
  const open = async (file, wanted) => {
    const answer = await fetch(new URL(file, self.location.href));
    if (!answer.ok) throw new Error(`the server has no ${file} (${answer.status})`);
    return runtime.InferenceSession.create(new Uint8Array(await answer.arrayBuffer()), wanted);
  };
  // Resampling is a handful of small products: a graphics card would only wait for them.
  resampler = await open(site.files.resampling, { ...options, executionProviders: ["wasm"] });
  network = await open(site.files.network, options);
  const [height, width] = site.grids[0];
  await run(new Float32Array(site.channels * height * width), [height, width]); // the first run is slow
  return {};
}

/** Numbers of shape (channels, ...from) on another grid, by the network's own kernel. */
async function resample(numbers, from, to) {
  if (from[0] === to[0] && from[1] === to[1]) return numbers;
  const channels = numbers.length / (from[0] * from[1]);
  const signal = new runtime.Tensor("float32", numbers, [1, channels, ...from]);
  const grid = new runtime.Tensor("int64", BigInt64Array.from(to, BigInt), [2]);
  const { resampled } = await resampler.run({ signal, grid });
  return resampled.data;
}

async function run(numbers, size) {
  const signal = new runtime.Tensor("float32", numbers, [1, site.channels, ...size]);
  const { probabilities, level } = await network.run({ signal });
  return { probabilities: probabilities.data, level: level === undefined ? 0 : Number(level.data[0]) };
}

/** Reads the pixels of a picture, fits it, and takes it to the network's highest grid. */
async function take({ bitmap, fit }) {
  const size = [bitmap.height, bitmap.width];
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind what is transparent
  context.fillRect(0, 0, bitmap.width, bitmap.height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const { data } = context.getImageData(0, 0, size[1], size[0]);

  const top = site.grids[0];
  const frame = frameOf(fit, size, top);
  if (frame[0] * frame[1] > site.most_pixels) throw new Error("the picture is too large with mirrored edges: choose other proportions");
  const [rows, columns] = frame.map((length, axis) => placesOf(size[axis], length));
  const target = frame.map((length, axis) => Math.min(length, top[axis]));

  // A strip of rows at a time along the width; then all rows along the height.
  const lines = new Float32Array(site.channels * frame[0] * target[1]);
  const together = Math.max(1, Math.floor(STRIP / frame[1]));
  for (let first = 0; first < frame[0]; first += together) {
    const strip = rows.subarray(first, first + together);
    const numbers = await resample(gather(data, size[1], strip, columns), [strip.length, frame[1]], [strip.length, target[1]]);
    const length = strip.length * target[1];
    for (let channel = 0; channel < site.channels; channel++) {
      const part = numbers.subarray(channel * length, (channel + 1) * length);
      lines.set(part, (channel * frame[0] + first) * target[1]);
    }
  }
  picture = { numbers: await resample(lines, [frame[0], target[1]], target), size: target };
  return { size, frame };
}

/** The pixels of some rows and columns as planes of numbers: three colours, or their luma as Pillow has it. */
function gather(data, width, rows, columns) {
  const count = rows.length * columns.length;
  const numbers = new Float32Array(site.channels * count);
  let place = 0;
  for (const row of rows) {
    for (const column of columns) {
      const from = 4 * (row * width + column);
      if (site.channels === 1) {
        numbers[place] = (data[from] * 19595 + data[from + 1] * 38470 + data[from + 2] * 7471 + 0x8000) >> 16;
      } else {
        numbers[place] = data[from];
        numbers[place + count] = data[from + 1];
        numbers[place + 2 * count] = data[from + 2];
      }
      place++;
    }
  }
  return numbers;
}

/** The network's answer for the picture at a size, and how long a run takes: measured for about `patience` milliseconds. */
async function answer({ size, patience }) {
  const samples = await resample(picture.numbers, picture.size, size);
  const found = await run(samples, size);
  const times = [];
  const began = performance.now();
  let last = began;
  do {
    await run(samples, size);
    const now = performance.now();
    times.push(now - last);
    last = now;
  } while (times.length < 50 && (last - began < patience || (times.length < 4 && last - began < 10 * patience)));
  return { ...found, samples, size, milliseconds: typical(times) };
}

/** The mean without the slowest quarter, in which the device did other things. Clocks of browsers are too coarse for a median. */
function typical(times) {
  const kept = times.sort((a, b) => a - b).slice(0, Math.ceil(0.75 * times.length));
  return kept.reduce((sum, time) => sum + time, 0) / kept.length;
}

/** The Laplacian pyramid of the picture at a size: on each grid what it holds, and what the next one cannot hold. */
async function pyramid({ size, grids }) {
  const samples = await resample(picture.numbers, picture.size, size);
  const levels = [];
  for (const grid of grids) levels.push({ grid, held: await resample(samples, size, grid) });
  for (let n = 0; n < levels.length - 1; n++) {
    // What the next grid holds of this one, and that on this grid again.
    const low = await resample(levels[n].held, grids[n], grids[n + 1]);
    levels[n + 1].held = low;
    const back = await resample(low, grids[n + 1], grids[n]);
    levels[n].detail = levels[n].held.map((number, place) => number - back[place]);
  }
  let built = levels.at(-1).held;
  for (let n = levels.length - 2; n >= 0; n--) {
    const back = await resample(built, grids[n + 1], grids[n]);
    built = levels[n].detail.map((number, place) => number + back[place]);
  }
  const difference = built.reduce((most, number, place) => Math.max(most, Math.abs(number - levels[0].held[place])), 0);
  return { levels, difference };
}

const ACTIONS = { start, take, answer, pyramid };
let turn = Promise.resolve();

self.addEventListener("message", ({ data: { id, action, request } }) => {
  turn = turn.then(async () => {
    try {
      self.postMessage({ id, found: await ACTIONS[action](request) });
    } catch (error) {
      self.postMessage({ id, trouble: String(error?.message ?? error).split("\n")[0].slice(0, 300) });
    }
  });
});
