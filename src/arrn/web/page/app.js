/** The page: what is chosen, what the network is asked, and what is shown of its answers. */

import { nameOf, sayAnswer, showAnswer, showTable } from "./answer_view.js";
import { drawChart, resolutionAt } from "./chart.js";
import { byId, element, paint, saySize, setText, shownName, spellBytes, spellCount, spellSize } from "./elements.js";
import { highestResolution, resolutionsFor, sizeAt } from "./framing.js";
import { Network } from "./network.js";
import { Camera, openPicture, Refusal } from "./pictures.js";
import { gainFor, gridsOf, showPyramid } from "./pyramid_view.js";
import { openTabs } from "./tabs.js";

const PATIENCE = { now: 25, all: 12 }; // milliseconds of measuring: for the slider's resolution, and for each of all

const slider = byId("resolution");
const camera = new Camera(byId("video"));

let site;
let network;
let source = null; // what a picture can be made of again: {name, blob}, or one frame of the camera
let picture = null; // {name, frame, highest, gain}
let answers = new Map(); // by resolution, of this picture
let answer = null; // what is shown
let wish = Infinity; // the resolution that was asked for last, which a small picture may not have; Infinity: its highest
let requests = 0; // for pictures: the last one counts
let generation = 0; // of pictures: what belongs to an earlier one is dropped
let measured = -1; // the generation of which all resolutions are measured

/** Shows what went wrong, in a sentence; nothing takes the last one away. */
function showTrouble(text) {
  byId("trouble").hidden = !text;
  setText("trouble", text ?? "");
}

/** Runs something that a visitor asked for; what it throws is shown. */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Refusal)) error = new Error(`This did not work here: ${error.message}.`);
    showTrouble(error.message);
  }
}

/** Sets the network up, by the processor or by the graphics card. */
async function startNetwork(backend) {
  network?.stop();
  byId("state").hidden = false;
  setText("state", `Loading ONNX Runtime (${spellBytes(site.runtime.bytes[backend])}) and the network (${spellBytes(site.bytes)}) …`);
  network = new Network();
  try {
    await network.start(site, backend);
  } finally {
    byId("state").hidden = true;
  }
}

/** Takes a picture to the network, and shows its answer. One that cannot be opened leaves the earlier one as it is. */
async function showPicture(chosen, { live = false } = {}) {
  const request = ++requests;
  const bitmap = await chosen.open();
  if (request !== requests) return bitmap.close();
  const mine = ++generation;
  const size = [bitmap.height, bitmap.width];
  const original = smallCopy(bitmap);
  source = chosen;
  let frame;
  byId("page").setAttribute("aria-busy", "true");
  try {
    ({ frame } = await network.take(bitmap, byId("fit").value));
  } catch (error) {
    if (picture && mine === generation) attempt(() => refresh().then(measureAll)); // the worker still has the earlier one
    throw error;
  } finally {
    byId("page").removeAttribute("aria-busy");
  }
  if (mine !== generation) return;
  showTrouble(null);
  const highest = highestResolution(site.grids[0], frame);
  picture = { name: chosen.name, size, frame, highest, gain: null };
  answers = new Map();
  byId("chart").dataset.whole = "false"; // until all resolutions are measured
  slider.max = highest;
  slider.value = Math.min(wish, highest);
  slider.disabled = false;
  byId("original").replaceWith(original);
  // Proportions matter where the picture's are not those of the grids.
  const [height, width] = site.grids[0];
  byId("fit-choice").hidden = Math.abs((size[0] * width) / (size[1] * height) - 1) < 1e-3;
  await refresh();
  if (!live) await measureAll();
}

function smallCopy(bitmap) {
  const share = Math.min(1, 96 / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((length) => Math.max(1, Math.round(length * share)));
  const canvas = element("canvas", { id: "original", class: "original", width, height, "aria-hidden": "true" });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
  return canvas;
}

let refreshing = null;
let wanted = false;

/** Asks for what the slider says. While that runs, later calls are one further run. */
function refresh() {
  wanted = true;
  refreshing ??= (async () => {
    try {
      while (wanted) {
        wanted = false;
        await refreshOnce();
      }
    } finally {
      refreshing = null;
    }
  })();
  return refreshing;
}

async function refreshOnce() {
  const [mine, shown, resolution] = [generation, picture, Number(slider.value)];
  const size = sizeAt(resolution, site.grids[0], shown.frame);
  setText("resolution-value", spellSize(size));
  slider.setAttribute("aria-valuetext", `${saySize(size)} pixels`);
  const found = await network.answer(size, camera.isOpen ? 0 : PATIENCE.now);
  const pyramid = byId("panel-pyramid").hidden ? null : await findPyramid(shown, size);
  if (mine !== generation) return;
  answer = { ...found, resolution };
  answers.set(resolution, answer);
  showSamples(shown, answer);
  byId("answer").hidden = false;
  showAnswer(site, answer);
  showChart();
  sayLater(sayAnswer(site, answer));
  if (pyramid) showPyramid(pyramid, site.grids.length > 1 ? answer.level : null, shown.gain, shapeOf(shown));
}

async function findPyramid(shown, size) {
  const grids = gridsOf(site);
  // Details of all resolutions are equally much stronger than they are, so that they can be compared.
  shown.gain ??= gainFor(await network.pyramid(sizeAt(shown.highest, site.grids[0], shown.frame), grids));
  return network.pyramid(size, grids);
}

function shapeOf({ frame }) {
  return Math.min(4, Math.max(0.25, frame[0] / frame[1]));
}

function showSamples(shown, { samples, size }) {
  const preview = byId("preview");
  paint(preview, samples, size);
  preview.style.aspectRatio = `1 / ${shapeOf(shown)}`;
  preview.style.setProperty("--shape", shapeOf(shown));
  preview.setAttribute("aria-label", `${shown.name} at ${saySize(size)} pixels`);
  setText("caption", `${shown.name}, ${spellSize(shown.size)}, seen at ${spellSize(size)}`);
}

function showChart() {
  if (camera.isOpen) return;
  drawChart(byId("chart"), site, [...answers.values()], picture.highest, Number(slider.value));
  showTable(site, [...answers.values()].sort((a, b) => b.resolution - a.resolution));
}

/** Measures all resolutions of the picture once, highest first, and lets the slider's go before them. */
async function measureAll() {
  const mine = generation;
  if (measured === mine) return;
  measured = mine;
  for (const resolution of resolutionsFor(picture.highest, site.grids, site.grids[0])) {
    await refreshing;
    if (mine !== generation) return;
    if (answers.has(resolution)) continue;
    const found = await network.answer(sizeAt(resolution, site.grids[0], picture.frame), PATIENCE.all);
    if (mine !== generation) return;
    answers.set(resolution, { ...found, resolution });
    showChart();
  }
  byId("chart").dataset.whole = "true";
}

let speaking;

/** Says something once it has stayed the same for a moment. */
function sayLater(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => setText("said", text), 600);
}

/** A file that was chosen, dropped or pasted. */
async function takeFile(file) {
  stopCamera();
  markSample(null);
  const name = shownName(file.name || "Pasted picture", 40);
  await showPicture({ name, open: () => openPicture(file, site.most_pixels) });
}

async function takeSample(sample, button) {
  stopCamera();
  markSample(button);
  const answer = await fetch(sample.file);
  if (!answer.ok) throw new Error(`the server has no ${sample.file}`);
  const blob = await answer.blob();
  await showPicture({ name: shownName(sample.name), open: () => openPicture(blob, site.most_pixels) });
}

function markSample(button) {
  for (const each of byId("sample-list").children) each.setAttribute("aria-pressed", String(each === button));
}

/** Shows the camera's frames one after another, until the button is pressed again or another picture is chosen. */
async function toggleCamera() {
  if (camera.isOpen) return stopCamera();
  await camera.open();
  markSample(null);
  byId("camera").setAttribute("aria-pressed", "true");
  setText("camera", "Keep this picture");
  byId("chart").replaceChildren(element("p", { class: "soft" }, "Keep a camera picture to see all resolutions."));
  showTable(site, []);
  try {
    while (camera.isOpen) {
      const kept = await keep(await camera.frame());
      if (camera.isOpen) await showPicture({ name: "Camera", open: () => createImageBitmap(kept) }, { live: true });
    }
  } catch (error) {
    if (camera.isOpen) throw error; // a frame that was asked for while the camera closed is no trouble
  }
  showChart();
  await measureAll();
}

/** A copy of a frame that can be opened again, for other proportions. */
async function keep(bitmap) {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas;
}

function stopCamera() {
  if (!camera.isOpen) return;
  camera.close();
  byId("camera").setAttribute("aria-pressed", "false");
  setText("camera", "Use the camera");
}

/** The visitor asks for another resolution. */
function moveTo(resolution) {
  slider.value = resolution;
  wish = resolution === picture.highest ? Infinity : resolution;
  attempt(refresh);
}

function listen() {
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = ""; // so that the same file can be chosen again
    if (file) attempt(() => takeFile(file));
  });
  byId("camera").addEventListener("click", () => attempt(toggleCamera));
  slider.addEventListener("input", () => {
    moveTo(Number(slider.value));
  });
  byId("fit").addEventListener("change", () => attempt(() => source && showPicture(source)));
  byId("backend").addEventListener("change", () => attempt(changeBackend));
  byId("chart").addEventListener("click", (event) => {
    const resolution = picture && resolutionAt(byId("chart"), event.clientX, picture.highest);
    if (resolution) moveTo(resolution);
  });
  new ResizeObserver(() => picture && answer && showChart()).observe(byId("chart"));
  openTabs(() => picture && attempt(refresh));
  listenForDrops();
}

function listenForDrops() {
  const show = (shown) => document.body.classList.toggle("dropping", shown);
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    show(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && show(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    show(false);
    attempt(() => takeFirst(event.dataTransfer.files));
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) attempt(() => takeFirst(event.clipboardData.files));
  });
}

async function takeFirst(files) {
  if (files.length === 0) throw new Refusal("This page takes picture files. What you dropped is not a picture file.");
  await takeFile(files[0]);
}

async function changeBackend() {
  const chosen = byId("backend").value;
  try {
    await startNetwork(chosen);
  } catch (error) {
    byId("backend").value = "wasm";
    await startNetwork("wasm");
    throw new Refusal(`The network does not run on this graphics card, so it runs on the processor: ${error.message}.`);
  }
  if (source) await showPicture(source);
}

function showSite() {
  document.title = `${shownName(site.model)}: one network, any resolution`;
  byId("fit").value = site.aspect;
  if (site.grids.length === 1) {
    const grid = spellSize(site.grids[0]);
    setText("promise", `Move the slider: this network has only the resolution ${grid}, and smaller pictures are interpolated to it.`);
    byId("levels").hidden = true;
    byId("pyramid-levels").hidden = true;
  }
  const longest = site.grids[0].indexOf(Math.max(...site.grids[0]));
  byId("level-marks").replaceChildren(...site.grids.map((grid) => element("option", { value: grid[longest] })));
  byId("samples").hidden = site.samples.length === 0;
  byId("sample-list").replaceChildren(
    ...site.samples.map((sample) => {
      const image = element("img", { src: sample.file, alt: "", width: 40, height: 40 });
      const name = shownName(sample.name);
      const button = element("button", { type: "button", "aria-label": name, title: name, "aria-pressed": "false" }, image);
      button.addEventListener("click", () => attempt(() => takeSample(sample, button)));
      return button;
    }),
  );
  const grids = site.grids.map(spellSize).join(", ");
  const classes = site.classes ? `${site.classes.length} classes: ${site.classes.slice(0, 10).map((_, n) => nameOf(site, n)).join(", ")}${site.classes.length > 10 ? ", …" : ""}` : "";
  byId("about").replaceChildren(
    element("p", {}, `Network: ${shownName(site.model)}, ${spellCount(site.parameters)} parameters, grids ${grids}. ${classes && `${classes}. `}Its answers can be wrong, above all for pictures that show none of its classes.`),
    element("p", {}, `Made by arrn ${site.arrn_version}, run by ONNX Runtime Web ${shownName(site.runtime.version)}. Nothing is sent anywhere.`),
  );
}

async function begin() {
  byId("unstarted").remove();
  byId("page").hidden = false;
  const answer = await fetch("site.json", { cache: "no-cache" });
  if (!answer.ok) throw new Error(`the server has no site.json (${answer.status})`);
  site = await answer.json();
  showSite();
  listen();
  await startNetwork("wasm");
  if (site.runtime.bytes.webgpu && (await navigator.gpu?.requestAdapter())) byId("backend-choice").hidden = false;
  const middle = Math.floor(site.samples.length / 2);
  if (site.samples.length > 0) await takeSample(site.samples[middle], byId("sample-list").children[middle]);
}

attempt(begin);
