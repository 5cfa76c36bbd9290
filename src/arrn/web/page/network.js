/** The network as the page sees it: questions to the worker that runs it, each answered by a promise. */

export class Network {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #waiting = new Map();
  #count = 0;

  constructor() {
    this.#worker.addEventListener("message", ({ data: { id, found, trouble } }) => {
      const asked = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (trouble === undefined) asked?.resolve(found);
      else asked?.reject(new Error(trouble));
    });
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#end(new Error(event.message || "its script could not be loaded"));
    });
  }

  /** Loads the network that `site.json` describes, by "wasm" or "webgpu". */
  start(described, backend) {
    return this.#ask("start", { described, backend });
  }

  /** Takes a picture, whose bitmap is used up; tells its size, and that of what is left or added by `fit`. */
  take(bitmap, fit) {
    return this.#ask("take", { bitmap, fit }, [bitmap]);
  }

  /** The answer to the picture at a size; time is measured for at least `patience` milliseconds. */
  answer(size, patience) {
    return this.#ask("answer", { size, patience });
  }

  /** The Laplacian pyramid of the picture at a size, over some grids. */
  pyramid(size, grids) {
    return this.#ask("pyramid", { size, grids });
  }

  /** Ends the worker; questions that wait are not answered. */
  stop() {
    this.#worker.terminate();
    this.#waiting.clear();
  }

  #ask(action, request, handedOver = []) {
    return new Promise((resolve, reject) => {
      const id = this.#count++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, action, request }, handedOver);
    });
  }

  #end(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
