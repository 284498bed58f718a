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

/** The checkpoints that several runs have: those of one fingerprint, or of one name where that is not known. */
const repeated = [];
for (const one of candidates) {
  const same = (other) => other.run !== one.run
    && (one.fingerprint && other.fingerprint ? one.fingerprint === other.fingerprint : one.name === other.name);
  const known = repeated.find(({ members }) => members.every(same));
  if (known) known.members.push(one);
  else repeated.push({ members: [one] });
}
repeated.splice(0, repeated.length, ...repeated.filter(({ members }) => members.length > 1));
repeated.forEach((one, number) => {
  const [{ name, fingerprint }] = one.members;
  const alone = repeated.every((other, place) => place === number || other.members[0].name !== name);
  one.shown = `${name}${alone ? "" : ` ${(fingerprint ?? String(number)).slice(0, 8)}`}, ${one.members.length} runs`;
  for (const member of one.members) member.repeats = one;
});

/** One benchmark of one candidate. */
class Part {
  constructor(info, number) {
    const { texts, size, items: count, columns: element } = info;
    Object.assign(this, { texts, size, count, element, number });
    this.candidate = candidates.find((one) => one.run === info.run && one.place === info.checkpoint);
    this.benchmark = meta.benchmarks[info.benchmark];
    this.columns = null;
  }

  /** Unpack the columns, once. */
  load() {
    this.loading ??= (async () => {
      this.columns = await unpackedJson(byId(this.element).textContent);
    })();
    return this.loading;
  }

  /** The number of each example. */
  get byExample() {
    this.numbers ??= new Map(this.columns.example.map((example, item) => [example, item]));
    return this.numbers;
  }

  /** The place of each example among all of the page, as people count them; the data has the steps from one to the next. */
  get ranks() {
    let rank = 0;
    this.summed ??= Int32Array.from(this.columns.rank, (step) => (rank += step));
    return this.summed;
  }

  /** The chunk of an item's texts, and its place in it. */
  place(item) {
    return [this.texts[Math.floor(item / this.size)], item % this.size];
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

/** Return the candidates that a choice means: one, all, or those of a checkpoint that several runs have. */
function meant(choice) {
  if (choice === EVERY) return candidates;
  return repeated.find(({ shown }) => shown === choice)?.members ?? candidates.filter(({ shown }) => shown === choice);
}

/** Return whether a choice may mean several candidates. */
const isSeveral = (choice) => choice === EVERY || repeated.some(({ shown }) => shown === choice);

/** Return the parts of a choice, and of a benchmark; of all benchmarks without one. */
function partsOf(choice, benchmark) {
  const who = new Set(meant(choice));
  return parts.filter((part) => who.has(part.candidate) && (!benchmark || part.benchmark.name === benchmark));
}

/** Return the parts in sets: those of one checkpoint and benchmark from several runs, which have the same items. */
function setsOf(some) {
  const key = (part) => part.candidate.repeats ?? part.candidate;
  const sets = [];
  for (const part of some) {
    const known = sets.find(([one]) => one.benchmark === part.benchmark && key(one) === key(part));
    if (known) known.push(part);
    else sets.push([part]);
  }
  return sets;
}

/**
 * The items that the list is about: part and number of each, and of its counterpart where two are compared.
 *
 * An example that a checkpoint was asked in several runs is one row. The runs' own rows, its members, have the numbers
 * after those of all such rows; the row speaks for one of them.
 */
class Rows {
  constructor(size, more = 0) {
    for (const name of ["part", "item", "first", "many", "head", "other", "otherItem"]) this[name] = new Int32Array(size + more);
    for (let row = 0; row < size + more; row += 1) this.first[row] = this.head[row] = row;
    this.many.fill(1);
    this.other.fill(-1);
    this.length = size;
    this.orders = new Map();
  }

  /** Return the rows for a choice of candidates and benchmark; the columns that this takes are unpacked first. */
  static async of({ a, b, benchmark }) {
    const sets = setsOf(partsOf(a, benchmark));
    const others = b ? partsOf(b, benchmark) : [];
    await Promise.all([...sets.flat(), ...others].map((part) => part.load()));
    const rows = sets.every(({ length }) => length === 1) ? Rows.ofItems(sets.flat()) : Rows.ofExamples(sets);
    rows.pair(others);
    return rows;
  }

  /** Return a row for each item of these parts. */
  static ofItems(some) {
    const rows = new Rows(some.reduce((sum, { count }) => sum + count, 0));
    let row = 0;
    for (const part of some) {
      for (let item = 0; item < part.count; item += 1, row += 1) {
        rows.part[row] = part.number;
        rows.item[row] = item;
      }
    }
    return rows;
  }

  /** Return a row for each example of these sets of parts, its runs as members. */
  static ofExamples(sets) {
    const places = sets.flatMap(placesIn);
    const rows = new Rows(places.length, places.reduce((sum, { length }) => sum + (length > 2 ? length / 2 : 0), 0));
    let next = rows.length;
    places.forEach((some, row) => {
      [rows.part[row], rows.item[row]] = some;
      if (some.length === 2) return;
      rows.first[row] = next;
      rows.many[row] = some.length / 2;
      for (let at = 0; at < some.length; at += 2, next += 1) {
        rows.part[next] = some[at];
        rows.item[next] = some[at + 1];
        rows.head[next] = row;
      }
    });
    return rows;
  }

  /** Give each row its counterpart among these parts: the same example of the same benchmark. */
  pair(others) {
    if (!others.length) return;
    for (let row = 0; row < this.length; row += 1) {
      const part = parts[this.part[row]];
      const other = others.find((one) => one.benchmark === part.benchmark);
      const counterpart = other?.byExample.get(part.columns.example[this.item[row]]);
      if (counterpart === undefined) continue;
      this.other[row] = other.number;
      this.otherItem[row] = counterpart;
    }
  }

  /** Return whether any row has several members. */
  get repeats() {
    return this.part.length > this.length;
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

  /** Return the rows of the runs behind a row; the row itself where there is one. */
  members(row) {
    return Array.from({ length: this.many[row] }, (_, place) => this.first[row] + place);
  }

  /** Let a row speak for one of its members. */
  speakFor(member) {
    const row = this.head[member];
    this.part[row] = this.part[member];
    this.item[row] = this.item[member];
  }

  /** Return which way the row flipped: "gained", "lost", "" where it did not, null where that is not known. */
  flip(row) {
    if (this.other[row] < 0) return null;
    const before = parts[this.part[row]].columns.right[this.item[row]] ?? null;
    const after = parts[this.other[row]].columns.right[this.otherItem[row]] ?? null;
    if (before === null || after === null) return null;
    return before === after ? "" : after ? "gained" : "lost";
  }

  /** Return the mean of a number over the members of a row; NaN where none has it. */
  mean(row, read) {
    let sum = 0;
    let many = 0;
    for (let member = this.first[row]; member < this.first[row] + this.many[row]; member += 1) {
      const number = read(parts[this.part[member]], this.item[member], member, this);
      if (number === null || number === undefined) continue;
      sum += number;
      many += 1;
    }
    return sum / many;
  }

  /** Return all rows by a number, those of equal ones in the order of the file and those without last; made once. */
  ordered(name, read, down) {
    const known = `${name} ${down}`;
    if (!this.orders.has(known)) {
      const keys = new Float64Array(this.length);
      for (let row = 0; row < this.length; row += 1) keys[row] = this.mean(row, read) * (down ? -1 : 1);
      this.orders.set(known, orderOf(keys));
    }
    return this.orders.get(known);
  }
}

/** Return the places of these numbers in their order, NaN last: each behind those that are less, and equal ones before it. */
function orderOf(keys) {
  const values = keys.slice().sort(); // by number; a function that compares would take ten times as long
  let numbers = keys.length;
  while (numbers && Number.isNaN(values[numbers - 1])) numbers -= 1;
  const taken = new Uint32Array(keys.length + 1);
  const order = new Uint32Array(keys.length);
  for (let place = 0; place < keys.length; place += 1) {
    const key = keys[place];
    let low = 0;
    let high = numbers;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] >= key) high = middle;
      else low = middle + 1;
    }
    order[low + taken[low]] = place;
    taken[low] += 1;
  }
  return order;
}

/** Return the places of each example of a set of parts: part and item of each run that has it. */
function placesIn(set) {
  const found = new Map();
  for (const part of set) {
    part.columns.example.forEach((example, item) => {
      const known = found.get(example);
      if (known) known.push(part.number, item);
      else found.set(example, [part.number, item]);
    });
  }
  return [...found.values()];
}
