/* One item as a person reads it, alone or beside another candidate's. Texts become text nodes, never markup. */

const KINDS = {
  choices: "question", Loglikelihood: "context", RollingLoglikelihood: "text", Generate: "prompt", FillMask: "text",
  PseudoLoglikelihood: "text", RunProgram: "program",
};
const FOLDED = 4000; // characters of a text that are shown at once
const ALIKE = 0.35; // the share of two texts that must be the same before their differences are marked

const labelled = (label, ...content) => make("section", { class: "field" }, make("h3", {}, label), ...content);
const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));

/** Return a text with what was searched for marked. */
function marked(text, pattern) {
  const shown = visible(text);
  if (!pattern) return [shown];
  const found = [];
  let from = 0;
  for (const match of shown.matchAll(new RegExp(pattern.source, `${pattern.flags.replace("g", "")}g`))) {
    if (!match[0]) continue;
    found.push(shown.slice(from, match.index), make("mark", {}, match[0]));
    from = match.index + match[0].length;
    if (found.length > 400) break;
  }
  return [...found, shown.slice(from)];
}

/** Return a text as it is, its lines kept; what is long stays folded. */
function textBlock(text, pattern) {
  if (text.length <= FOLDED) return make("pre", {}, ...marked(text, pattern));
  const rest = make("details", {}, make("summary", {}, `${counted(text.length - FOLDED, "more character")}`));
  rest.append(make("pre", {}, ...marked(text.slice(FOLDED), pattern)));
  return make("div", {}, make("pre", {}, ...marked(text.slice(0, FOLDED), pattern)), rest);
}

/** Return the text of B: struck out what only A has, underlined what only B has. Unlike texts are not mixed. */
function changedBlock(before, after, pattern) {
  if (before === after) return make("p", { class: "faint" }, "the same as for A");
  const found = differences(visible(before), visible(after));
  const same = found.reduce((sum, [kind, text]) => sum + (kind === "same" ? text.trim().length : 0), 0);
  if (same < ALIKE * Math.max(before.length, after.length)) return textBlock(after, pattern);
  const tags = { gone: "del", new: "ins" };
  return make("pre", {}, ...found.map(([kind, text]) => (kind === "same" ? text : make(tags[kind], {}, text))));
}

/** Return a question; the beginning that it shares with others is folded. */
function questionBlock(asked, lead, pattern) {
  const label = KINDS[asked.kind] ?? asked.kind;
  const text = asked.question ?? "";
  const inLead = lead && pattern && new RegExp(pattern.source, pattern.flags).test(text.slice(0, lead));
  const shared = lead
    ? make("details", { open: inLead },
        make("summary", {}, `${counted(lead, "character")} of few-shot examples or instructions, shared with other items`),
        make("pre", {}, ...marked(text.slice(0, lead), pattern)))
    : null;
  const turns = (asked.turns ?? []).map(([role, said]) =>
    make("div", { class: "turn" }, make("h4", {}, role), textBlock(said, pattern)));
  const rest = turns.length ? turns : text.length > lead ? [textBlock(text.slice(lead), pattern)] : [];
  return labelled(label, shared, ...rest);
}

/** Return the choices of one or two candidates as a table with log-probabilities. */
function choiceTable(asked, other) {
  const finite = (choice) => choice.logprob !== null && choice.logprob !== undefined;
  const number = (choice) => (choice && finite(choice) ? choice.logprob.toFixed(2) : "no token");
  const head = ["choice", ...(other ? ["A", "B"] : ["log-probability"])];
  const chosen = (choice) =>
    [number(choice), choice?.chosen ? make("span", { class: "chosen" }, " ◀ chosen") : null];
  const rows = asked.choices.map((choice, place) => {
    const mate = other?.choices?.find((one) => one.text === choice.text) ?? other?.choices?.[place];
    return make("tr", { class: choice.right ? "due" : null },
      make("th", { scope: "row" }, visible(choice.text), choice.right ? make("b", {}, " ✓ right") : null),
      make("td", { class: "number" }, ...chosen(choice)),
      other ? make("td", { class: "number" }, ...chosen(mate)) : null);
  });
  const heads = head.map((name) => make("th", { scope: "col" }, name));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "choices" },
    make("table", { class: "choices" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
}

/** Return the answers of one candidate; beside another's, with what differs from them. */
function answerBlocks(asked, pattern, base) {
  const answers = asked.answers ?? [];
  return answers.map((said, place) => {
    const label = answers.length > 1 ? `answer ${place + 1} of ${answers.length}` : "answer";
    const before = base?.answers?.[place];
    const text = said.text ?? "";
    const block = before ? changedBlock(before.text ?? "", text, pattern) : text ? textBlock(text, pattern) : null;
    const thought = said.reasoning
      ? make("details", {}, make("summary", {}, `reasoning, ${counted(said.reasoning.length, "character")}`),
          make("pre", {}, ...marked(said.reasoning, pattern)))
      : null;
    return labelled(label, thought, block, said.remark ? make("p", { class: "faint" }, visible(said.remark)) : null);
  });
}

function programBlocks(item, pattern) {
  const programs = item.programs ?? [];
  return programs.map((program, place) => labelled(
    programs.length > 1 ? `program ${place + 1} of ${programs.length}` : "program",
    make("p", { class: program.outcome === "passed" ? "good" : "bad" }, visible(program.outcome ?? "not run"),
      program.detail ? make("span", { class: "faint" }, ` ${visible(program.detail)}`) : null),
    textBlock(program.text ?? "", pattern)));
}

/** Return names and texts as a list; none where there are none. */
function pairsBlock(label, pairs, pattern) {
  if (!pairs.length) return null;
  return labelled(label, make("dl", {}, ...pairs.flatMap(([name, value]) => [
    make("dt", {}, visible(name)),
    make("dd", {}, ...(value === null ? [make("i", {}, "nothing")] : marked(plain(value), pattern))),
  ])));
}

/** Return what the columns have of an item: its scores and measures. */
function figuresOf(part, item) {
  const scores = part.benchmark.metrics.map((name) => [name, part.measure(name, item)]);
  const measures = [
    ["length", part.measure("length", item), "characters"], ["seconds", part.measure("seconds", item), ""],
    ["tokens of the answers", part.measure("tokens", item), ""], ["samples", part.columns.repeats?.[item] > 1 ? part.columns.repeats[item] : null, ""],
  ];
  return [...scores, ...measures]
    .filter(([, value]) => value !== null)
    .map(([name, value, unit]) => [name, `${short(value)}${unit ? ` ${unit}` : ""}`]);
}

/** Return how many of several are right, in words; colour alone says nothing. */
function shareRight(right, many) {
  const [kind, sign] = right === many ? ["good", "✓ "] : right ? [null, ""] : ["bad", "✗ "];
  return make("span", { class: kind }, `${sign}${right} of ${many} right`);
}

/** Return the verdict on an item as a word with a sign, on one with several samples as their share. */
function verdictOf(part, item) {
  const status = part.status(item);
  const right = part.right(item);
  if (status !== "scored") return make("span", { class: status === "skipped" ? "faint" : "bad" }, `! ${status}`);
  const passed = part.columns.passed?.[item] ?? null;
  if (passed !== null) return shareRight(passed, part.columns.repeats[item]);
  if (!right) return make("span", {}, short(part.score(item)));
  return make("span", { class: right === "right" ? "good" : "bad" }, right === "right" ? "✓ right" : "✗ wrong");
}

/** Return what follows the answers: what was read out of them, what was due, programs, the row, notes. */
function aboutBlocks(item, part, number, pattern) {
  const fields = Object.keys(part.columns.fields ?? {}).filter((name) => !(name in (item.row ?? {})));
  return [
    item.message ? labelled("message", make("pre", { class: "bad" }, ...marked(item.message, pattern))) : null,
    pairsBlock("read out of the answer, by rule", Object.entries(item.extracted ?? {}), pattern),
    item.gold === undefined || item.gold === null ? null : labelled("gold", textBlock(plain(item.gold), pattern)),
    ...programBlocks(item, pattern),
    pairsBlock("figures", figuresOf(part, number)),
    pairsBlock("row of the dataset", Object.entries(item.row ?? {}), pattern),
    pairsBlock("fields", fields.map((name) => [name, part.field(name, number)]).filter(([, value]) => value)),
    (item.notes ?? []).length ? labelled("notes", ...item.notes.map((note) => make("p", {}, visible(note)))) : null,
  ].filter(Boolean);
}

/** Return an item alone. */
function itemBlocks(item, part, number, pattern) {
  const asked = (item.asked ?? []).flatMap((one, place) => [
    questionBlock(one, place ? 0 : item.lead ?? 0, pattern),
    one.choices?.length ? labelled("choices", choiceTable(one)) : null,
    ...answerBlocks(one, pattern),
  ]);
  return [...asked.filter(Boolean), ...aboutBlocks(item, part, number, pattern)];
}

/** Return an item of A beside that of B: what was asked once where it is the same, then the two answers. */
function pairBlocks({ item, part, number }, { item: mate, part: other, number: mateNumber }, pattern) {
  const blocks = [];
  const many = Math.max(item.asked?.length ?? 0, mate.asked?.length ?? 0);
  for (let place = 0; place < many; place += 1) {
    const [one, two] = [item.asked?.[place], mate.asked?.[place]];
    if (!one || !two) {
      blocks.push(labelled(`asked of ${one ? "A" : "B"} only`), questionBlock(one ?? two, 0, pattern));
      blocks.push(...answerBlocks(one ?? two, pattern));
      continue;
    }
    blocks.push(questionBlock(one, place ? 0 : item.lead ?? 0, pattern));
    if ((one.question ?? "") !== (two.question ?? "")) {
      blocks.push(labelled("asked of B, with what differs", changedBlock(one.question ?? "", two.question ?? "", pattern)));
    }
    if (one.choices?.length) blocks.push(labelled("choices", choiceTable(one, two)));
    if (one.answers?.length || two.answers?.length) {
      blocks.push(make("div", { class: "sides" },
        make("div", {}, make("h3", { class: "side" }, "A"), ...answerBlocks(one, pattern)),
        make("div", {}, make("h3", { class: "side" }, "B"), ...answerBlocks(two, pattern, one))));
    }
  }
  const about = (who, blocksOf) => make("div", {}, make("h3", { class: "side" }, who), ...blocksOf);
  blocks.push(make("div", { class: "sides" },
    about("A", aboutBlocks(item, part, number, pattern)), about("B", aboutBlocks(mate, other, mateNumber, pattern))));
  return blocks;
}
