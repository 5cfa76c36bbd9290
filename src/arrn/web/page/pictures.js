/** Pictures from files and from the camera. What cannot be taken is refused in one sentence. */

import { shownName, spellBytes } from "./elements.js";

const MOST_BYTES = 64e6;

/** A sentence for the reader, and not a fault of the page. */
export class Refusal extends Error {}

/**
 * The bitmap of a file, upright and with its colours as they are stored.
 * Its size is read before any pixel, since a small file can hold a huge picture.
 */
export async function openPicture(file, mostPixels) {
  const name = shownName(file.name || "The picture");
  if (file.size === 0) throw new Refusal(`${name} is empty.`);
  if (file.size > MOST_BYTES) {
    throw new Refusal(`${name} has ${spellBytes(file.size)}; this page takes files of ${spellBytes(MOST_BYTES)} at most.`);
  }
  const unreadable = new Refusal(`${name} is not a picture that this browser can read.`);
  const [width, height] = await sizeOf(file, unreadable);
  if (width * height > mostPixels) {
    const million = (number) => Math.round(number / 1e6);
    throw new Refusal(
      `${name} has ${width} × ${height} pixels, which is ${million(width * height)} million; this page takes ${million(mostPixels)} million at most.`,
    );
  }
  try {
    return await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw unreadable;
  }
}

/** Width and height from the head of the file, before it is decoded. */
function sizeOf(file, unreadable) {
  return new Promise((resolve, reject) => {
    const address = URL.createObjectURL(file);
    const image = new Image();
    image.onload = () => {
      URL.revokeObjectURL(address);
      if (image.naturalWidth && image.naturalHeight) resolve([image.naturalWidth, image.naturalHeight]);
      else reject(unreadable);
    };
    image.onerror = () => {
      URL.revokeObjectURL(address);
      reject(unreadable);
    };
    image.src = address;
  });
}

/** The camera, from `open` to `close`. */
export class Camera {
  #video;
  #stream = null;

  constructor(video) {
    this.#video = video;
  }

  get isOpen() {
    return this.#stream !== null;
  }

  /** Asks for the camera, and begins to show what it sees. */
  async open() {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new Refusal("This browser allows the camera only for pages from https, or from this machine.");
    }
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, facingMode: "environment" } });
    } catch (error) {
      throw new Refusal(
        error.name === "NotAllowedError" ? "The camera is not allowed for this page." : "There is no camera that this page can use.",
      );
    }
    this.#video.srcObject = this.#stream;
    await this.#video.play();
  }

  /** What the camera sees now. */
  frame() {
    return createImageBitmap(this.#video);
  }

  close() {
    this.#stream?.getTracks().forEach((track) => track.stop());
    this.#stream = null;
    this.#video.srcObject = null;
  }
}
