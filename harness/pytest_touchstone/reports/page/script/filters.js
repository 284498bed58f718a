/* The state of the view, as it stands in the address, and which rows it leaves, in which order. */

const RIGHTS = [["", "any"], ["right", "right"], ["wrong", "wrong"], ["none", "neither"]];
const FLIPS = [
  ["", "any"], ["flipped", "flipped"], ["gained", "wrong → right"], ["lost", "right → wrong"], ["kept", "not flipped"],
];

/** The state: plain names and texts. Names with a dot carry the name of a column: `min.seconds`, `field.source`. */
const CHOICES = ["a", "b", "benchmark"];
const ORDER = ["sort", "down", "item", "on", "of"];
const NO_ITEM = { item: "", on: "", of: "" };

const newState = () => ({ a: "", b: "", benchmark: "" });

/** Return the state that an address has. */
function stateOf(hash) {
  const state = newState();
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (name !== "items" && value !== "") state[name] = value;
  }
  return state;
}

/** Return the address of a state; a link to an item begins with it. */
function addressOf(state) {
  const first = { [state.item ? "item" : "items"]: state.item ?? "" };
  const others = Object.entries({ ...state, item: "" }).filter(([, value]) => value !== "" && value !== undefined);
  return `#${new URLSearchParams([...Object.entries(first), ...others])}`;
}

/** The names of the filters that are set: all but the choice of candidates, the order, and the open item. */
const filtersOf = (state) =>
  Object.keys(state).filter((name) => !CHOICES.includes(name) && !ORDER.includes(name) && name !== "in" && state[name]);

/** Return what to look for: `/pattern/flags` is a regular expression, anything else a text in any case. */
function queryOf(state) {
  if (!state.q) return null;
  const written = /^\/(.+)\/([a-z]*)$/s.exec(state.q);
  const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const [source, flags] = written ? [written[1], written[2].replace(/[gy]/g, "")] : [literal(state.q), "i"];
  new RegExp(source, flags); // raises what is wrong with it
  const json = written || unlikeJson(state.q) ? null : literal(JSON.stringify(state.q).slice(1, -1));
  return { source, flags, json, where: state.in ?? "" };
}

/** Return whether a text may stand in an item otherwise than in its JSON: within nested data, as a number, or across the end of a line, where a shared beginning ends. */
const unlikeJson = (text) => /["\\\n]|^[\d\s.,:eE+\-[\]{}]*$/.test(text);

/** Return the tests of an item that one part's items must pass. */
function testsOf(state, part) {
  const tests = [];
  for (const name of filtersOf(state)) {
    const wanted = state[name];
    const [kind, column] = name.split(/\.(.*)/s);
    if (kind === "status") tests.push((item) => part.status(item) === wanted);
    else if (kind === "right") tests.push((item) => (part.right(item) || "none") === wanted);
    else if (kind === "group") tests.push((item) => part.group(item) === wanted);
    else if (kind === "error") tests.push((item) => part.error(item) === wanted);
    else if (kind === "invalid") tests.push((item) => part.columns.invalid[item] === 1);
    else if (kind === "example") tests.push((item) => part.columns.example[item].includes(wanted));
    else if (kind === "field") tests.push((item) => part.field(column, item) === wanted);
    else if (kind === "has") {
      tests.push((item) => part.field(column, item).toLowerCase().includes(wanted.toLowerCase()));
    } else if (kind === "min" || kind === "max") {
      const limit = Number(wanted);
      tests.push((item) => {
        const number = part.measure(column, item);
        return number !== null && (kind === "min" ? number >= limit : number <= limit);
      });
    }
  }
  return tests;
}

function flipTest(rows, wanted) {
  if (!wanted) return () => true;
  if (wanted === "kept") return (row) => rows.flip(row) === "";
  if (wanted === "flipped") return (row) => Boolean(rows.flip(row));
  return (row) => rows.flip(row) === wanted;
}

/** Return the rows that the state leaves, each speaking for the first of its members that passes; `hits` has by chunk what a search found, null without one. */
function filtered(rows, state, hits) {
  const tests = parts.map(() => null);
  const flips = flipTest(rows, state.b ? state.flip : "");
  const hit = (part, item) => {
    const [key, place] = part.place(item);
    return hits.get(key)?.[place] === 1;
  };
  const passes = (row) => {
    const part = parts[rows.part[row]];
    const item = rows.item[row];
    tests[part.number] ??= testsOf(state, part);
    if (!tests[part.number].every((test) => test(item)) || !flips(row)) return false;
    return !hits || hit(part, item) || (rows.other[row] >= 0 && hit(parts[rows.other[row]], rows.otherItem[row]));
  };
  const left = new Uint32Array(rows.length);
  let many = 0;
  for (let row = 0; row < rows.length; row += 1) {
    const member = rows.many[row] > 1 ? rows.members(row).find(passes) ?? -1 : passes(row) ? row : -1;
    if (member < 0) continue;
    if (member !== row) rows.speakFor(member);
    left[many] = row;
    many += 1;
  }
  return left.subarray(0, many);
}

const FLIP_ORDER = { lost: 0, gained: 1 };
const RIGHT_ORDER = { wrong: 0, right: 1, "": 2 };

/** Return the place of each of these texts in their order. */
function placesOf(names) {
  const order = [...new Set(names)].sort((one, two) => COLLATOR.compare(one, two));
  return new Map(order.map((name, place) => [name, place]));
}

/** What a row is sorted by: a function for the rows, from part and item to a number; null comes last either way. */
const SORTS = {
  flips: () => (part, item, row, rows) => FLIP_ORDER[rows.flip(row)] ?? 2,
  verdict: () => (part, item) => RIGHT_ORDER[part.right(item)] + part.columns.status[item],
  example: () => (part, item) => part.ranks[item],
  benchmark: () => {
    const places = placesOf(meta.benchmarks.map(({ name }) => name));
    return (part) => places.get(part.benchmark.name);
  },
  checkpoint: () => (part) => part.candidate.number,
  group: () => {
    const places = placesOf(meta.benchmarks.flatMap(({ groups }) => groups));
    return (part, item) => places.get(part.group(item)) ?? null;
  },
  change: () => (part, item, row, rows) => {
    const { other, otherItem } = rows.at(row);
    const [before, after] = [part.score(item), other?.score(otherItem) ?? null];
    return before === null || after === null ? null : after - before;
  },
};

/** Return the rows in the order of the state, those of equal rank in the order of the file. */
function sorted(rows, numbers, state) {
  const name = state.sort || (state.b ? "flips" : "");
  if (!name) return state.down ? numbers.slice().reverse() : numbers;
  const read = Object.hasOwn(SORTS, name) ? SORTS[name]() : (part, item) => part.measure(name, item);
  const wanted = new Uint8Array(rows.length);
  for (const row of numbers) wanted[row] = 1;
  return rows.ordered(name, read, Boolean(state.down)).filter((row) => wanted[row]);
}

/** Return counts of the rows: right and judged of both candidates, and the flips of those judged in both. */
function tally(rows, numbers) {
  const sums = { rows: numbers.length, judged: 0, right: 0, pairs: 0, before: 0, after: 0, gained: 0, lost: 0 };
  for (const row of numbers) {
    for (let member = rows.first[row]; member < rows.first[row] + rows.many[row]; member += 1) {
      const right = parts[rows.part[member]].columns.right[rows.item[member]] ?? null;
      if (right === null) continue;
      sums.judged += 1;
      sums.right += right;
    }
    const flip = rows.flip(row);
    if (flip === null) continue;
    const right = parts[rows.part[row]].columns.right[rows.item[row]];
    sums.pairs += 1;
    sums.before += right;
    sums.after += flip === "" ? right : 1 - right;
    if (flip) sums[flip] += 1;
  }
  return sums;
}
