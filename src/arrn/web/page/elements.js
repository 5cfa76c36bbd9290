/** Elements and texts of the page. Names of files and classes are strangers' text: they stay text here. */

/**
 * An element. Children are elements or text; null and undefined are left out.
 * Attributes: true is one without a value; false, null and undefined are none.
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** The element of this page with that id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Gives an element another text, only where it changes, so that nothing is read aloud twice. */
export function setText(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
}

/** A name that a stranger chose: without control characters and marks that turn the direction of writing, not too long. */
export function shownName(name, most = 60) {
  const letters = [...String(name).replace(/[^\P{C}\u200c\u200d]|[\p{Zl}\p{Zp}]/gu, "\ufffd")];
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 1).join("")}…`;
}

/** (height, width) as people say it: width first. */
export function spellSize([height, width]) {
  return `${width} × ${height}`;
}

/** The same for those who hear the page. */
export function saySize([height, width]) {
  return `${width} by ${height}`;
}

/** A probability between 0 and 1 in percent. */
export function spellShare(share) {
  return `${(100 * share).toFixed(1)}%`;
}

/** A large number in three digits: "8.83 million". */
export function spellCount(number) {
  for (const [size, name] of [[1e9, "billion"], [1e6, "million"], [1e3, "thousand"]]) {
    if (number >= 0.9995 * size) {
      const share = number / size;
      return `${share.toFixed(Math.max(0, 3 - String(Math.trunc(share)).length))} ${name}`;
    }
  }
  return number.toFixed(0);
}

/** Milliseconds, without digits that say nothing. */
export function spellTime(milliseconds) {
  return milliseconds.toFixed(milliseconds < 10 ? 2 : milliseconds < 100 ? 1 : 0);
}

/** Bytes as people say them. */
export function spellBytes(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

/** Draws planar numbers from 0 to 255, of shape (channels, height, width), one pixel each. */
export function paint(canvas, numbers, [height, width], { gain = 1, zero = 0 } = {}) {
  const image = new ImageData(width, height);
  const count = height * width;
  const channels = numbers.length / count;
  for (let place = 0; place < count; place++) {
    for (let colour = 0; colour < 3; colour++) {
      image.data[4 * place + colour] = zero + gain * numbers[place + (channels === 3 ? colour * count : 0)];
    }
    image.data[4 * place + 3] = 255;
  }
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}
