/* The fields above the list: which items, which filters are set. They are drawn from the state. */

function drawControls() {
  const names = candidates.map((one) => [one.shown, one.shown]);
  const all = candidates.length > 1 ? [[EVERY, "every candidate"]] : [];
  fillSelect(byId("pick-a"), [...names, ...repeated.map(({ shown }) => [shown, shown]), ...all], state.a);
  fillSelect(byId("pick-b"), [["", "none"], ...names.filter(([name]) => name !== state.a)], state.b);
  byId("pick-b").disabled = state.a === EVERY;
  byId("pick-a").parentElement.hidden = byId("pick-b").parentElement.hidden = candidates.length < 2;
  const benchmarks = meta.benchmarks.map(({ name }) => [name, name]);
  fillSelect(byId("pick-benchmark"), [...(benchmarks.length > 1 ? [["", "all"]] : []), ...benchmarks], state.benchmark);
  byId("pick-benchmark").parentElement.hidden = benchmarks.length < 2;
  const sorts = [
    ["", state.b ? "flips first" : "as in the file"], ["example", "example"], ["verdict", "verdict"],
    ...(state.b ? [["change", "change of the score"]] : []), ["group", "group"], ["benchmark", "benchmark"],
    ...numericColumns().map((name) => [name, name]), ...(isSeveral(state.a) ? [["checkpoint", "checkpoint"]] : []),
  ];
  fillSelect(byId("sort"), sorts, state.sort ?? "");
  byId("sort-way").setAttribute("aria-pressed", String(Boolean(state.down)));
  byId("sort-way").textContent = state.down ? "↓" : "↑";
  if (document.activeElement !== byId("find")) byId("find").value = state.q ?? "";
  byId("find-in").value = state.in ?? "";
  drawFilters();
  drawChips();
  drawHead();
}

const inScope = () => meta.benchmarks.filter(({ name }) => !state.benchmark || name === state.benchmark);
const numericColumns = () => [...new Set([...inScope().flatMap((one) => one.metrics), ...MEASURES])];

/** Return what values the loaded parts in view have, in order, each once. */
function valuesOf(reader) {
  const loaded = partsOf(state.a, state.benchmark).filter((part) => part.columns);
  return [...new Set(loaded.flatMap(reader))].map(String).filter(Boolean).sort(COLLATOR.compare);
}

const FEW = 100; // values of a field that one chooses from; of more one types a part

function drawFilters() {
  const form = byId("filters");
  if (form.hidden || form.contains(document.activeElement)) return;
  const choose = (name, label, pairs) => {
    const select = make("select", { change: ({ target }) => update({ [name]: target.value }) });
    fillSelect(select, pairs, state[name] ?? "");
    return pairs.length > 1 ? make("label", {}, label, select) : null;
  };
  const any = (values) => [["", "any"], ...values.map((value) => [value, visible(value)])];
  const type = (name, label, kind, attributes = {}) => make("input", {
    type: kind, "aria-label": label, value: state[name] ?? null, ...attributes,
    change: ({ target }) => update({ [name]: target.value }),
  });
  const ranges = numericColumns().map((name) => make("div", { class: "range" }, make("span", {}, name),
    type(`min.${name}`, `${name}, at least`, "number", { step: "any", placeholder: "at least" }),
    type(`max.${name}`, `${name}, at most`, "number", { step: "any", placeholder: "at most" })));
  const fields = [...new Set(inScope().flatMap((one) => one.fields))].map((name) => {
    const column = (part) => part.columns.fields?.[name]?.values ?? [];
    const few = partsOf(state.a, state.benchmark).every((part) => !part.columns || column(part).length <= FEW);
    const values = few ? valuesOf(column) : [];
    if (few && values.length <= FEW) return choose(`field.${name}`, name, any(values));
    return make("label", {}, name, type(`has.${name}`, `${name} contains`, "text", { placeholder: "contains" }));
  });
  form.replaceChildren(...[
    choose("right", "right or wrong", RIGHTS),
    state.b ? choose("flip", "flipped, A → B", FLIPS) : null,
    choose("status", "status", any(meta.statuses)),
    choose("group", "group", any(inScope().flatMap((one) => one.groups).filter((one, place, all) => all.indexOf(one) === place))),
    choose("error", "error or outcome", any(valuesOf((part) => part.columns.error?.values ?? []))),
    choose("invalid", "answers", [["", "any"], ["1", "cut off, or nothing found in them"]]),
    make("label", {}, "example", type("example", "example contains", "text", { placeholder: "contains" })),
    ...fields, ...ranges,
  ].filter(Boolean));
}

/** Return a filter in words. */
function worded(name) {
  const value = state[name];
  const [kind, column] = name.split(/\.(.*)/s);
  const of = (pairs) => pairs.find(([one]) => one === value)?.[1] ?? value;
  const words = {
    q: () => `${state.in === "prompt" ? "prompt" : state.in === "answer" ? "answer" : "text"} has ${value}`,
    flip: () => of(FLIPS), right: () => of(RIGHTS), invalid: () => "answers cut off or without a find",
    min: () => `${column} ≥ ${value}`, max: () => `${column} ≤ ${value}`, field: () => `${column}: ${value}`,
    has: () => `${column} contains ${value}`, example: () => `example contains ${value}`,
  };
  return visible(Object.hasOwn(words, kind) ? words[kind]() : `${kind}: ${value}`);
}

function drawChips() {
  const names = filtersOf(state);
  const chips = names.map((name) => make("button", {
    type: "button", "aria-label": `Remove the filter ${worded(name)}`, click: () => update({ [name]: "" }),
  }, `${worded(name)} ✕`));
  if (names.length > 1) {
    const none = Object.fromEntries(names.map((name) => [name, ""]));
    chips.push(make("button", { type: "button", click: () => update(none) }, "Remove all"));
  }
  byId("chips").replaceChildren(...chips);
}
