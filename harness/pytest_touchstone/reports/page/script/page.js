/* Joins it all: the controls, the list, the open item, the address, the keys. */

const texts = new Texts();
let state = newState();
let rows = new Rows(0);
let left = new Uint32Array(0); // the rows that the filters leave, in order
let shown = left; // those, and the members of unfolded ones
let unfolded = new Set();
let pattern = null; // what was searched for, to mark it
let base = ""; // the choice that `rows` were made for
let turn = 0; // the number of the latest update; older ones give up

const list = new List(byId("grid"), byId("rows"), fillRow);
list.drawn = fillBriefs;

// The list

const COLUMNS = [
  ["verdict", "verdict"], ["example", "example"], ["benchmark", "benchmark"], ["checkpoint", "checkpoint"],
  ["group", "group"], ["", "question and answer"], ["score", "score"], ["length", "length"], ["seconds", "seconds"],
];

/** Return the columns that the choice needs, as [sort, label]. */
function columnsShown() {
  const several = new Set(partsOf(state.a, state.benchmark).map((part) => part.benchmark.name)).size > 1;
  const groups = partsOf(state.a, state.benchmark).some((part) => part.benchmark.groups.length);
  const wanted = { benchmark: several, checkpoint: isSeveral(state.a), group: groups, score: !state.b };
  return COLUMNS.filter(([name]) => wanted[name] ?? true);
}

function drawHead() {
  const names = partsOf(state.a, state.benchmark).flatMap((part) => (part.columns?.example ?? []).map((name) => withoutBenchmark(part, name).length));
  const longest = names.reduce((most, length) => Math.max(most, length), 0);
  byId("grid").style.setProperty("--example", `${Math.min(12, 2 + longest * 0.55)}rem`);
  const cells = columnsShown().map(([name, label]) => {
    const by = name === "score" ? meta.benchmarks.find((one) => one.name === state.benchmark)?.primary ?? "" : name;
    const mine = by && state.sort === by;
    const way = mine ? (state.down ? "descending" : "ascending") : null;
    const sign = mine ? (state.down ? " ↓" : " ↑") : "";
    const inner = by
      ? make("button", { type: "button", click: () => update({ sort: by, down: mine && !state.down ? "1" : "" }) },
          `${label}${sign}`)
      : label;
    return make("div", { role: "columnheader", class: `cell ${name || "brief"}`, "aria-sort": way }, inner);
  });
  byId("head").replaceChildren(make("div", { role: "row", class: "row", "aria-rowindex": 1 }, ...cells));
}

function fillRow(element, index) {
  const row = shown[index];
  const { part, item } = rows.at(row);
  const flip = state.b ? rows.flip(row) : null;
  const several = rows.many[row] > 1;
  const mean = (read) => {
    const number = rows.mean(row, read);
    return [short(Number.isNaN(number) ? null : number)];
  };
  const contents = {
    verdict: state.b ? pairVerdict(row) : several ? verdictOfSeveral(row) : [verdictOf(part, item)],
    example: [foldSign(row), visible(withoutBenchmark(part, part.columns.example[item])), manyOf(part, item)],
    benchmark: [part.benchmark.name],
    checkpoint: [visible(several ? part.candidate.repeats.shown : row < rows.length ? part.candidate.shown : part.candidate.runLabel)],
    group: [visible(part.group(item))],
    score: mean((one, at) => one.score(at)),
    length: [short(part.measure("length", item))],
    seconds: mean((one, at) => one.measure("seconds", at)),
  };
  const cells = columnsShown().map(([name]) =>
    make("div", { role: "gridcell", class: `cell ${name || "brief"}` }, ...(contents[name] ?? [])));
  element.replaceChildren(...cells);
  element.querySelector(".example").title = visible(part.columns.example[item]);
  for (const cell of element.querySelectorAll(".checkpoint")) cell.title = cell.textContent;
  element.className = `row ${flip ?? ""} ${row < rows.length ? "" : "member"}`;
  if (several) element.setAttribute("aria-expanded", String(unfolded.has(row)));
  if (rows.repeats) element.setAttribute("aria-level", row < rows.length ? 1 : 2);
  element.onclick = ({ target }) => {
    list.active = index;
    if (target.matches(".fold")) fold(row, unfolded.has(row));
    else openRow(index, false);
  };
}

/** Return the sign that unfolds a row with several members; keys do so too. */
function foldSign(row) {
  return rows.many[row] > 1 ? make("span", { class: "fold", "aria-hidden": "true" }, unfolded.has(row) ? "▾" : "▸") : null;
}

/** Fold a row, or show the rows of its runs below it. */
function fold(row, folded) {
  if (folded) unfolded.delete(row);
  else unfolded.add(row);
  layOut();
  list.show(shown.length);
  list.go(shown.indexOf(row));
}

/** Put the members of unfolded rows among the rows that are left. */
function layOut() {
  const more = (row) => unfolded.has(row);
  shown = left.some(more) ? Uint32Array.from([...left].flatMap((row) => (more(row) ? [row, ...rows.members(row)] : [row]))) : left;
  byId("grid").setAttribute("aria-rowcount", shown.length + 1);
}

/** Return how many runs of a checkpoint were right, or their mean score where none is right or wrong. */
function verdictOfSeveral(row) {
  const rights = rows.members(row).map((one) => parts[rows.part[one]].columns.right[rows.item[one]] ?? null);
  const judged = rights.filter((right) => right !== null);
  if (judged.length) return [shareRight(judged.reduce((sum, right) => sum + right, 0), judged.length)];
  const { part, item } = rows.at(row);
  return [verdictOf(part, item), ` ×${rights.length}`];
}

/** Return what became of a row from A to B, in a word where both are right or wrong. */
function pairVerdict(row) {
  const { part, item, other, otherItem } = rows.at(row);
  const flip = rows.flip(row);
  if (flip) return [make("span", { class: flip === "lost" ? "bad" : "good" }, flip === "lost" ? "✗ lost" : "✓ gained")];
  if (flip === "") return [make("span", { class: "faint" }, `both ${part.right(item)}`)];
  return [verdictOf(part, item), " → ", other ? verdictOf(other, otherItem) : make("span", { class: "faint" }, "not asked")];
}

/** Return an example without the benchmark's name, which stands elsewhere, so that its number is seen. */
function withoutBenchmark(part, example) {
  const start = `${part.benchmark.name}/`;
  return example.startsWith(start) ? example.slice(start.length) : example;
}

/** Return the number of samples where there are several. */
function manyOf(part, item) {
  const many = part.columns.repeats?.[item] ?? 1;
  return many > 1 ? make("span", { class: "faint" }, ` ×${many}`) : null;
}

/** Write question and answer in brief into the rows drawn, once their texts are unpacked. */
async function fillBriefs(indexes) {
  const elements = indexes.map((index) => list.elements.get(index));
  const wanted = indexes.map((index) => [rows.part[shown[index]], rows.item[shown[index]]]);
  const told = await texts.brief(wanted).catch(() => []); // a search that is given up ends this too
  told.forEach((one, order) => {
    const cell = elements[order].querySelector(".brief");
    if (!cell || !one) return;
    cell.replaceChildren(make("span", { class: "asked" }, visible(one.asked)),
      make("span", { class: "said" }, visible(one.said)));
  });
}

// The open item

/** Open the item of a row. `focus` moves the focus to it. */
async function openRow(index, focus) {
  list.go(index);
  const { part, item } = rows.at(shown[index]);
  state = { ...state, ...nameOf(part, item) };
  writeAddress();
  await drawItem(shown[index]);
  if (focus) byId("item").focus();
}

/** Return what names an item in the address: its example; also its benchmark and candidate where there are several. */
function nameOf(part, item) {
  return {
    item: part.columns.example[item],
    on: state.benchmark || meta.benchmarks.length < 2 ? "" : part.benchmark.name,
    of: isSeveral(state.a) ? part.candidate.shown : "",
  };
}

function closeItem() {
  const pane = byId("item");
  if (pane.hidden) return;
  state = { ...state, ...NO_ITEM };
  writeAddress();
  pane.hidden = true;
  byId("items").classList.remove("open");
  byId("grid").focus();
  list.go(list.active);
}

async function drawItem(row) {
  const { part, item, other, otherItem } = rows.at(row);
  const pane = byId("item");
  const mine = (drawItem.turn = (drawItem.turn ?? 0) + 1);
  const [one, two] = await Promise.all([
    texts.item(part.number, item), other ? texts.item(other.number, otherItem) : null,
  ]);
  if (mine !== drawItem.turn || !state.item) return;
  const blocks = two
    ? pairBlocks({ item: one, part, number: item }, { item: two, part: other, number: otherItem }, pattern)
    : itemBlocks(one, part, item, pattern);
  const name = part.columns.example[item];
  const close = make("button", { type: "button", click: closeItem, "aria-label": "Close the item" }, "✕");
  const step = (by, sign, label) =>
    make("button", { type: "button", "aria-label": label, click: () => openRow(list.active + by, false) }, sign);
  pane.replaceChildren(
    make("div", { class: "item-head" },
      make("h2", { id: "item-title" }, visible(name)),
      make("a", { href: addressOf(state), "aria-label": "Link to this item" }, "link"),
      step(-1, "↑", "Previous item"), step(1, "↓", "Next item"), close),
    make("p", { class: "item-who" }, ...who(part, item, other, otherItem)),
    ...blocks, await everywhere(part, item));
  pane.hidden = false;
  pane.setAttribute("tabindex", "0");
  pane.scrollTop = 0;
  byId("items").classList.add("open");
  list.draw();
}

function who(part, item, other, otherItem) {
  const group = part.group(item);
  const where = make("span", { class: "faint" }, `${part.benchmark.name}${group ? `, ${visible(group)}` : ""}`);
  const one = [verdictOf(part, item), ` ${part.candidate.shown} `];
  if (!state.b) return [...one, where];
  const two = other ? [verdictOf(other, otherItem), ` ${other.candidate.shown} `] : ["not asked "];
  return ["A ", ...one, " → B ", ...two, where];
}

/** Return what every candidate made of the example, each a way to see it. */
async function everywhere(part, item) {
  const others = parts.filter((one) => one.benchmark === part.benchmark);
  if (others.length < 2) return "";
  await Promise.all(others.map((one) => one.load()));
  const example = part.columns.example[item];
  const buttons = others.map((one) => {
    const number = one.byExample.get(example);
    if (number === undefined) return null;
    return make("li", {}, make("button", {
      type: "button",
      "aria-current": one === part ? "true" : null,
      click: () => see(one.candidate.shown),
    }, verdictOf(one, number), ` ${one.candidate.shown}`));
  });
  return labelled("the same example, by candidate", make("ul", { class: "everywhere" }, ...buttons));
}

/** Show the open item as another candidate answered it. */
function see(name) {
  if (meant(state.a).length > 1 && meant(state.a).some(({ shown: own }) => own === name)) return update({ of: name });
  return update({ a: name, b: state.b === name ? "" : state.b });
}

/** Say how many items are left, how many of them are right, and, of two candidates, what the pairs tell. */
function drawCounts(note) {
  const sums = tally(rows, left);
  const several = new Set(partsOf(state.a, state.benchmark).map((part) => part.benchmark.name)).size > 1;
  // A share of right answers to the questions of several benchmarks is one of nothing.
  const right = sums.judged && !state.b && !several ? `; ${percent(sums.right / sums.judged)} right for ${state.a === EVERY ? "all" : visible(state.a)}` : "";
  byId("counts").textContent = `${sums.rows.toLocaleString("en")} of ${counted(rows.length, "item")}${right}${note}`;
  const line = byId("paired");
  line.hidden = !state.b;
  if (!state.b) return;
  line.replaceChildren(...pairedText(sums));
}

function pairedText(sums) {
  if (!sums.pairs) return ["No item here is right or wrong for both."];
  const change = points((sums.after - sums.before) / sums.pairs);
  const chosen = filtersOf(state).length > 0;
  const text = `A ${percent(sums.before / sums.pairs)} → B ${percent(sums.after / sums.pairs)} (${change}) over `
    + `${counted(sums.pairs, "pair")}: ${sums.gained} gained, ${sums.lost} lost; `
    + `${shownP(mcNemar(sums.gained, sums.lost))} (McNemar, exact).`;
  const warning = make("strong", { class: "warning" },
    " These items were chosen by filters: the p describes them and is no verdict on the candidates.");
  return [text, chosen ? warning : verdictText()];
}

/** Return the verdict over all items as `touchstone compare` has it, where the page holds it; of all benchmarks the pooled one. */
function verdictText() {
  const is = (who, name) => candidates.some((one) =>
    one.shown === name && one.run === who.run && one.place === who.checkpoint);
  const names = inScope().map(({ name }) => name);
  const about = (one) => (one.benchmark === null ? names.length > 1 : names.length === 1 && meta.benchmarks[one.benchmark].name === names[0]);
  const found = (meta.verdicts ?? []).find((one) => is(one.a, state.a) && is(one.b, state.b) && about(one));
  if (!found) return "";
  const what = found.benchmark === null ? "all items, pooled" : found.metric;
  return ` Verdict on ${what}: ${found.verdict}${found.why ? ` (${visible(found.why)})` : ""}.`;
}

// Updates

function writeAddress() {
  history.replaceState(null, "", addressOf(state));
  byId("to-items").href = addressOf({ ...state, ...NO_ITEM });
}

/** Take changes of the state, write the address, and show what it says. */
function update(changes = {}) {
  state = { ...state, ...changes };
  if (changes.b && repeated.some((one) => one.shown === state.a)) state.a = pickOf(state.a, state.b);
  if (isSeveral(state.a) || state.a === state.b) state.b = "";
  writeAddress();
  return refresh();
}

/** Return the run of a checkpoint that is set beside B: that of the open item, else the first. */
function pickOf(choice, other) {
  const names = meant(choice).map(({ shown: own }) => own).filter((own) => own !== other);
  return names.includes(state.of) ? state.of : names[0];
}

/** Show the items of the state as it is. */
async function refresh() {
  const mine = (turn += 1);
  const choice = JSON.stringify([state.a, state.b, state.benchmark]);
  if (choice !== base) {
    texts.ahead(chunksInView(), { busy: true }).catch(() => {});
    const made = await Rows.of(state);
    if (mine !== turn) return;
    rows = made;
    base = choice;
    unfolded = new Set();
    byId("grid").setAttribute("role", rows.repeats ? "treegrid" : "grid");
  }
  drawControls();
  if (!state.item) {
    list.active = -1;
    byId("grid").scrollTop = 0;
  }
  const { hits, note } = await found(mine);
  if (mine !== turn) return;
  const place = drawRows(hits, note);
  setTimeout(() => texts.ahead(chunksInView()).catch(() => {}));
  if (place >= 0) {
    list.go(place);
    await drawItem(shown[place]);
    return;
  }
  list.active = -1;
  list.mark();
  byId("item").hidden = true;
  byId("items").classList.remove("open");
  if (state.item) {
    byId("counts").textContent += `; the item ${visible(state.item)} is not among them`;
  }
}

/** Show the rows that are left, and return the place of the item that the state names, -1 where it is not there. */
function drawRows(hits, note) {
  left = sorted(rows, filtered(rows, state, hits), state);
  layOut();
  const place = placeOf(state);
  list.show(shown.length);
  drawCounts(note);
  return place;
}

/** Return the chunks with the texts of A and B. */
function chunksInView() {
  const names = state.b ? [state.a, state.b] : [state.a];
  return names.flatMap((name) => partsOf(name, state.benchmark)).flatMap((part) => part.texts);
}

const OFTEN = 150; // milliseconds between two drawings of what a search has found so far

/** Return by chunk what the search finds, and a note; what it has found so far is shown. No hits where nothing is searched for. */
async function found(mine) {
  pattern = null;
  let drawn = -OFTEN;
  const told = (hits, share) => {
    if (mine !== turn || performance.now() - drawn < OFTEN) return;
    drawRows(hits, `; searched ${Math.floor(100 * share)} % of the texts so far`);
    drawn = performance.now();
  };
  try {
    const query = queryOf(state);
    byId("find").removeAttribute("aria-invalid");
    if (!query) return { hits: null, note: "" };
    pattern = query;
    return { hits: await texts.search({ ...query, keys: chunksInView() }, told), note: "" };
  } catch (error) {
    if (mine === turn) {
      pattern = null;
      byId("find").setAttribute("aria-invalid", "true");
    }
    return { hits: null, note: `; the search was left out: ${error.message}` };
  }
}

/** Return the place in the list of the item that the state names; -1 where it is not there. A folded row speaks for it. */
function placeOf({ item, on, of }) {
  if (!item) return -1;
  const isMeant = (row) => {
    const { part, item: number } = rows.at(row);
    return item === part.columns.example[number] && (!on || part.benchmark.name === on)
      && (!of || part.candidate.shown === of);
  };
  const several = (row) => rows.many[row] > 1;
  const row = left.find((one) => (several(one) ? rows.members(one).some(isMeant) : isMeant(one)));
  if (row === undefined) return -1;
  const spoken = !several(row) || (isMeant(row) && !unfolded.has(row));
  const member = spoken ? row : rows.members(row).find(isMeant);
  if (member !== row) rows.speakFor(member);
  return shown.indexOf(unfolded.has(row) ? member : row);
}

// Views, theme, keys

/** Show the view that the address names: the items, or the summary. */
function route() {
  const names = new URLSearchParams(location.hash.replace(/^#/, ""));
  const items = names.has("items") || names.has("item");
  document.documentElement.classList.toggle("in-items", items);
  byId("items").hidden = !items;
  byId("summary").hidden = items;
  byId("to-items").setAttribute("aria-current", items ? "page" : "false");
  byId("to-summary").setAttribute("aria-current", items ? "false" : "page");
  if (!items) return;
  state = { ...newState(), ...stateOf(location.hash) };
  const known = (name) => candidates.some((one) => one.shown === name);
  const [first, second] = defaults();
  if (candidates.length < 2 || (!isSeveral(state.a) && !known(state.a))) [state.a, state.b] = [first, state.b || second];
  if (!known(state.b) || isSeveral(state.a)) state.b = "";
  byId("to-items").href = addressOf({ ...state, ...NO_ITEM });
  refresh();
}

/** Return A and B as they are at first: what is compared; else the last checkpoint, in all of its runs. */
function defaults() {
  if (meta.kind === "comparison") return [0, 1].map((number) => candidates[number]?.shown ?? "");
  const last = candidates.at(-1);
  return [last?.repeats?.shown ?? last?.shown ?? "", ""];
}

const THEMES = ["system", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("touchstone-theme", theme);
  } catch {
    // A page in a frame or a private window may keep nothing: the theme then holds until it is closed.
  }
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
}

function savedTheme() {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem("touchstone-theme")) ?? "system";
  } catch {
    return "system";
  }
}

function toggleFilters() {
  const form = byId("filters");
  form.hidden = !form.hidden;
  byId("filters-button").setAttribute("aria-expanded", String(!form.hidden));
  drawFilters();
  if (!form.hidden) form.querySelector("select, input")?.focus();
}

const MOVES = {
  j: () => list.active + 1, ArrowDown: () => list.active + 1, k: () => list.active - 1, ArrowUp: () => list.active - 1,
  PageDown: () => list.active + list.page, PageUp: () => list.active - list.page, Home: () => 0, End: () => list.count - 1,
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const target = event.target;
  if (event.key === "Escape") return escaped(target, event);
  if (target.matches("input, select, textarea")) return;
  const keys = {
    "?": () => byId("help").showModal(), t: nextTheme,
    s: () => { location.hash = "#summary"; }, i: () => { location.hash = addressOf(state); },
  };
  const items = !byId("items").hidden;
  if (items) Object.assign(keys, { "/": () => byId("find").select(), f: toggleFilters });
  if (items && moves(event)) return;
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
}

/** Move in the list or open an item, where the key asks for it; return whether it did. */
function moves(event) {
  const { key, target } = event;
  const inGrid = target === byId("grid") || target === document.body;
  const letters = key === "j" || key === "k";
  if (key === "Enter" && inGrid && list.active >= 0) {
    event.preventDefault();
    openRow(list.active, true);
    return true;
  }
  if (inGrid && rows.repeats && turned(key)) {
    event.preventDefault();
    return true;
  }
  if (!MOVES[key] || !(inGrid || letters)) return false;
  event.preventDefault();
  list.go(MOVES[key]());
  if (!byId("item").hidden) openRow(list.active, false);
  else byId("grid").focus({ preventScroll: true });
  return true;
}

/** Unfold the active row, fold it, or go from a member to its row, as the arrows say; return whether there was anything to do. */
function turned(key) {
  const row = shown[list.active];
  if (row === undefined || (key !== "ArrowRight" && key !== "ArrowLeft")) return false;
  const open = unfolded.has(row);
  if (row >= rows.length && key === "ArrowLeft") list.go(shown.indexOf(rows.head[row]));
  else if (rows.many[row] > 1 && open === (key === "ArrowLeft")) fold(row, open);
  else return false;
  return true;
}

function escaped(target, event) {
  if (target.matches("input, select")) {
    if (target === byId("find") && target.value) return;
    byId("grid").focus();
  } else if (!byId("item").hidden) closeItem();
  event.preventDefault();
}

// The beginning

function begin() {
  byId("bar").hidden = false;
  for (const link of document.querySelectorAll(".to-items")) link.hidden = false;
  setTheme(savedTheme());
  const choose = (id, name) => byId(id).addEventListener("change", ({ target }) => update({ [name]: target.value }));
  choose("pick-a", "a");
  choose("pick-b", "b");
  choose("pick-benchmark", "benchmark");
  choose("find-in", "in");
  choose("sort", "sort");
  let typing;
  byId("find").addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    typing = setTimeout(() => update({ q: target.value }), 120);
  });
  const clicks = {
    "sort-way": () => update({ down: state.down ? "" : "1" }), "filters-button": toggleFilters, theme: nextTheme,
    "help-button": () => byId("help").showModal(), "keep-csv": keepCsv, "keep-jsonl": keepJsonl,
  };
  for (const [id, act] of Object.entries(clicks)) byId(id).addEventListener("click", act);
  for (const id of ["tools", "filters"]) byId(id).addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", pressed);
  addEventListener("hashchange", route);
  route();
}

begin();
