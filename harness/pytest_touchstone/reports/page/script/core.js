"use strict";
/* What all the scripts use. They are joined in the order core, texts, data, filters, list, item, controls, downloads, page. */

const byId = (id) => document.getElementById(id);

/** Return an element. Children that are strings become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return a select's options anew; `pairs` has value and label. */
function fillSelect(select, pairs, value) {
  select.replaceChildren(...pairs.map(([one, label]) => make("option", { value: one }, label)));
  select.value = pairs.some(([one]) => one === value) ? value : pairs[0]?.[0] ?? "";
}

/** Show signs that a screen does not, by number: control characters, those without a width, and those that turn the direction of a text. */
function visible(text) {
  return text.replace(/\r\n/g, "\n").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, (sign) =>
    `⟨U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

const SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%:()*+-;.=,?@^_`{|}~";

/** Return what a block of data holds, as UTF-8: five signs are four bytes of gzip. Workers have this function too. */
async function unpackedBytes(block, signs) {
  const values = new Uint32Array(128);
  for (let place = 0; place < signs.length; place += 1) values[signs.charCodeAt(place)] = place;
  const codes = new TextEncoder().encode(block.padEnd(5 * Math.ceil(block.length / 5), signs.at(-1)));
  const bytes = new Uint8Array((4 * codes.length) / 5);
  const view = new DataView(bytes.buffer);
  for (let from = 0, to = 0; to < bytes.length; from += 5, to += 4) {
    const high = (values[codes[from]] * 85 + values[codes[from + 1]]) * 85 + values[codes[from + 2]];
    view.setUint32(to, (high * 85 + values[codes[from + 3]]) * 85 + values[codes[from + 4]]);
  }
  // Written and read by hand: a Blob and a Response take three times as long.
  const gzip = new DecompressionStream("gzip");
  const writer = gzip.writable.getWriter();
  const packed = bytes.subarray(0, Math.floor((4 * block.length) / 5));
  for (const step of [writer.write(packed), writer.close()]) step.catch(() => {}); // the reader raises what is wrong
  const reader = gzip.readable.getReader();
  const pieces = [];
  let size = 0;
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    pieces.push(piece.value);
    size += piece.value.length;
  }
  if (pieces.length === 1) return pieces[0];
  const whole = new Uint8Array(size);
  let place = 0;
  for (const piece of pieces) {
    whole.set(piece, place);
    place += piece.length;
  }
  return whole;
}

/** Return the data of a block that holds JSON. */
async function unpackedJson(block) {
  return JSON.parse(new TextDecoder().decode(await unpackedBytes(block, SIGNS)));
}

/** The order of texts in which people expect them: numbers by their size. */
const COLLATOR = new Intl.Collator("en", { numeric: true });

const counted = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
/** A share in per cent: what is not quite all is not 100.0 %. */
const percent = (share) => `${Math.min(100 * share, share < 1 ? 99.9 : 100).toFixed(1)} %`;
const points = (share) => `${share < -0.0005 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)} points`;

/** Return a number as short as it can be read: four significant digits. */
function short(number) {
  if (number === null || number === undefined) return "";
  return Number.isInteger(number) ? String(number) : String(Number(number.toPrecision(4)));
}

/** Return the exact two-sided p of McNemar's test: how likely a split this uneven is where both ways are alike. */
function mcNemar(gained, lost) {
  const flips = gained + lost;
  let term = -flips * Math.LN2;
  let sum = 0;
  for (let few = 0; few <= Math.min(gained, lost); few += 1) {
    sum += Math.exp(term);
    term += Math.log((flips - few) / (few + 1));
  }
  return Math.min(1, 2 * sum);
}

/** Return p as people write it. */
const shownP = (p) => (p < 0.001 ? "p < 0.001" : `p = ${p.toPrecision(2)}`);

/** Return the parts of two texts as [kind, text]; kind is "same", "gone" or "new". Words are compared, not signs. */
function differences(before, after) {
  const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const [old, fresh] = [words(before), words(after)];
  let start = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
  let end = 0;
  while (end < Math.min(old.length, fresh.length) - start && old.at(-1 - end) === fresh.at(-1 - end)) end += 1;
  const middle = between(old.slice(start, old.length - end), fresh.slice(start, fresh.length - end));
  const parts = [["same", old.slice(0, start)], ...middle, ["same", end ? old.slice(-end) : []]];
  return parts.map(([kind, some]) => [kind, some.join("")]).filter(([, text]) => text);
}

/** Return the parts of two lists of words by their longest common subsequence; lists too long for it count as other. */
function between(old, fresh) {
  const width = fresh.length + 1;
  if (old.length * width > 6e6) return [["gone", old], ["new", fresh]];
  const longest = new Uint16Array((old.length + 1) * width);
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = fresh.length - 1; column >= 0; column -= 1) {
      const place = row * width + column;
      longest[place] = old[row] === fresh[column]
        ? longest[place + width + 1] + 1
        : Math.max(longest[place + width], longest[place + 1]);
    }
  }
  const parts = [];
  const add = (kind, word) => (parts.at(-1)?.[0] === kind ? parts.at(-1)[1].push(word) : parts.push([kind, [word]]));
  let [row, column] = [0, 0];
  while (row < old.length || column < fresh.length) {
    const place = row * width + column;
    if (row < old.length && column < fresh.length && old[row] === fresh[column]) {
      add("same", old[row]);
      row += 1;
      column += 1;
    } else if (column === fresh.length || (row < old.length && longest[place + width] >= longest[place + 1])) {
      add("gone", old[row]);
      row += 1;
    } else {
      add("new", fresh[column]);
      column += 1;
    }
  }
  return parts;
}

/** Keep a file of this text on the reader's machine. */
function keep(name, kind, parts) {
  const address = URL.createObjectURL(new Blob(parts, { type: kind }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
