/* What the page holds: candidates (checkpoints of runs), parts (one benchmark of one of them) and their columns. */

const meta = JSON.parse(byId("page-meta").textContent);

/** The checkpoints of all runs. Each is called by its name; where others have it too by its run's, or by both. */
const candidates = meta.runs.flatMap((run, number) =>
  run.checkpoints.map((checkpoint, place) => ({ ...checkpoint, run: number, place, runLabel: run.label ?? run.id })));
{
  const ways = [(one) => one.name, (one) => one.runLabel, (one) => `${one.name}, ${one.runLabel}`];
  const alone = (one, way) => candidates.filter((other) => way(other) === way(one)).length === 1;
  candidates.forEach((one, number) => {
    const way = ways.find((some) => alone(one, some)) ?? (() => `${one.name}, ${one.runLabel} (${number + 1})`);
    one.shown = way(one);
    one.number = number;
  });
}

/** One benchmark of one candidate. */
class Part {
  constructor(info, number) {
    Object.assign(this, { texts: info.texts, size: info.size, count: info.items, element: info.columns, number });
    this.candidate = candidates.find((one) => one.run === info.run && one.place === info.checkpoint);
    this.benchmark = meta.benchmarks[info.benchmark];
    this.columns = null;
  }

  /** Unpack the columns, once. */
  load() {
    this.loading ??= (async () => {
      const code = byId(this.element).textContent;
      const bytes = Uint8Array.from(atob(code.trim()), (sign) => sign.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      this.columns = await new Response(stream).json();
    })();
    return this.loading;
  }

  /** The number of each example. */
  get byExample() {
    this.numbers ??= new Map(this.columns.example.map((example, item) => [example, item]));
    return this.numbers;
  }

  /** Names in which numbers have one length, so that their order is the one that people expect. */
  get sortable() {
    this.padded ??= this.columns.example.map((text) => text.replace(/\d+/g, (digits) => digits.padStart(9, "0")));
    return this.padded;
  }

  /** The chunk of an item's texts, and its place in it. */
  place(item) {
    const place = this.columns.place?.[item] ?? item;
    return [this.texts[Math.floor(place / this.size)], place % this.size];
  }

  status(item) {
    return meta.statuses[this.columns.status[item]];
  }

  /** Return whether the item is right, wrong, or neither. */
  right(item) {
    const right = this.columns.right[item];
    return right === null || right === undefined ? "" : right ? "right" : "wrong";
  }

  group(item) {
    const group = this.columns.group[item];
    return group === null || group === undefined ? "" : this.benchmark.groups[group];
  }

  error(item) {
    return coded(this.columns.error, item);
  }

  field(name, item) {
    return Object.hasOwn(this.columns.fields, name) ? coded(this.columns.fields[name], item) : "";
  }

  /** Return a number of the item: a score, or its length, seconds or tokens; null where there is none. */
  measure(name, item) {
    const columns = MEASURES.includes(name) ? this.columns : this.columns.metrics;
    return Object.hasOwn(columns, name) ? columns[name][item] ?? null : null;
  }

  score(item) {
    return this.measure(this.benchmark.primary, item);
  }
}

const MEASURES = ["length", "seconds", "tokens"];

function coded(column, item) {
  const code = column?.codes[item];
  return code === null || code === undefined ? "" : String(column.values[code]);
}

const parts = meta.parts.map((info, number) => new Part(info, number));

/** The choice of all candidates at once, where one is to be chosen. */
const EVERY = "*";

/** Return the parts of a candidate, or of every one, and of a benchmark; of all benchmarks without one. */
function partsOf(candidate, benchmark) {
  return parts.filter((part) =>
    (candidate === EVERY || part.candidate.shown === candidate) && (!benchmark || part.benchmark.name === benchmark));
}

/** The items that the list is about: part and number of each, and of its counterpart where two are compared. */
class Rows {
  constructor(size) {
    this.part = new Int32Array(size);
    this.item = new Int32Array(size);
    this.other = new Int32Array(size).fill(-1);
    this.otherItem = new Int32Array(size).fill(-1);
    this.length = size;
  }

  /** Return the rows for a choice of candidates and benchmark; the columns that this takes are unpacked first. */
  static async of({ a, b, benchmark }) {
    const mine = partsOf(a, benchmark);
    const others = b ? partsOf(b, benchmark) : [];
    await Promise.all([...mine, ...others].map((part) => part.load()));
    const rows = new Rows(mine.reduce((sum, part) => sum + part.count, 0));
    let row = 0;
    for (const part of mine) {
      const other = others.find((one) => one.benchmark === part.benchmark);
      for (let item = 0; item < part.count; item += 1, row += 1) {
        rows.part[row] = part.number;
        rows.item[row] = item;
        const counterpart = other?.byExample.get(part.columns.example[item]);
        if (counterpart === undefined) continue;
        rows.other[row] = other.number;
        rows.otherItem[row] = counterpart;
      }
    }
    return rows;
  }

  /** Return part and item of a row, and those of its counterpart. */
  at(row) {
    return {
      part: parts[this.part[row]],
      item: this.item[row],
      other: this.other[row] < 0 ? null : parts[this.other[row]],
      otherItem: this.otherItem[row],
    };
  }

  /** Return which way the row flipped: "gained", "lost", "" where it did not, null where that is not known. */
  flip(row) {
    if (this.other[row] < 0) return null;
    const before = parts[this.part[row]].columns.right[this.item[row]] ?? null;
    const after = parts[this.other[row]].columns.right[this.otherItem[row]] ?? null;
    if (before === null || after === null) return null;
    return before === after ? "" : after ? "gained" : "lost";
  }
}
