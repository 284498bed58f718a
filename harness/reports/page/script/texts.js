/* The texts of all items: unpacked, searched and shown in brief, in workers where the browser allows them. */

/** The work itself. It runs in a worker from its own source, so it uses nothing from outside but its arguments and `unpackedBytes`. */
function textService(scope, signs) {
  const OVERLAP = 80; // characters of a shared beginning that are searched with what follows it
  const SLICE = 40; // milliseconds of a search after which other calls have their turn
  const chunks = new Map();
  const wordLists = new Map(); // as `inRow` returns them
  const lately = []; // the chunks whose items are kept as they are
  let queue = Promise.resolve();
  let searches = 0; // those that were begun: the latest one stops those before it

  const decoder = new TextDecoder();

  /** Return the items of a chunk. */
  async function unpacked({ code, words }) {
    const [bytes, known] = await Promise.all([unpackedBytes(code, signs), wordLists.get(words)]);
    return JSON.parse(decoder.decode(known.longest ? written(bytes, known) : bytes));
  }

  /** Return words one after the other as bytes, where each begins, and how long they are at most. */
  function inRow(words) {
    const each = words.map((word) => new TextEncoder().encode(word));
    const starts = new Uint32Array(each.length + 1);
    each.forEach(({ length }, number) => { starts[number + 1] = starts[number] + length; });
    const bytes = new Uint8Array(starts.at(-1));
    each.forEach((word, number) => bytes.set(word, starts[number]));
    return { bytes, starts, longest: Math.max(0, ...each.map(({ length }) => length)) };
  }

  /** Write frequent words in place of their codes: one or two signs, the first of which JSON never holds as it is. As bytes that takes a third of the time that it takes as text. */
  function written(coded, { bytes, starts, longest }) {
    let whole = new Uint8Array(3 * coded.length);
    let size = 0;
    for (let place = 0; place < coded.length; place += 1) {
      if (size + longest >= whole.length) {
        const longer = new Uint8Array(2 * (size + longest + 1));
        longer.set(whole);
        whole = longer;
      }
      const sign = coded[place];
      if (sign > 31) whole[size++] = sign;
      else {
        const number = sign < 8 ? sign - 1 : 7 + 95 * (sign - 8) + coded[(place += 1)] - 32;
        for (let at = starts[number]; at < starts[number + 1]; at += 1) whole[size++] = bytes[at];
      }
    }
    return whole.subarray(0, size);
  }

  const question = (item) => item?.asked?.[0]?.question ?? "";

  /** Return the beginning that each item's question shares with others: the chunk has it once, with the first of them. */
  function leads(items) {
    let last = "";
    return items.map((item) => {
      const lead = item?.asked?.[0]?.lead;
      if (typeof lead === "string") last = lead;
      return lead ? last : "";
    });
  }

  /** Return an item with its whole first question. */
  function restored(item, lead) {
    if (!lead) return item;
    const { lead: _, ...first } = item.asked[0];
    return { ...item, asked: [{ ...first, question: lead + first.question }, ...item.asked.slice(1)] };
  }

  const flat = (value) => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));

  /** Return what a search looks through: what was asked, what was answered, and the rest. */
  function pieces(item, front) {
    const prompt = [];
    const answer = [];
    for (const asked of item.asked ?? []) {
      prompt.push(prompt.length ? asked.question ?? "" : front + question(item));
      for (const [, text] of asked.turns ?? []) prompt.push(text);
      for (const choice of asked.choices ?? []) answer.push(choice.text);
      for (const said of asked.answers ?? []) answer.push(said.text, said.remark);
    }
    for (const program of item.programs ?? []) answer.push(program.text, program.outcome, program.detail);
    const other = [item.message, item.gold, ...Object.values(item.extracted ?? {}), ...(item.notes ?? [])];
    other.push(...Object.values(item.row ?? {}).map(flat));
    return [prompt, answer, other].map((texts) => texts.filter(Boolean).join("\n"));
  }

  /** Return the texts of a chunk's items as slices of one string, which takes least memory. */
  function searchable(items) {
    const shared = leads(items);
    const each = items.flatMap((item, place) => pieces(item, shared[place].slice(-OVERLAP)));
    const whole = each.join("\u0000");
    let start = 0;
    const slices = each.map(({ length }) => whole.slice(start, (start += length + 1) - 1));
    const prefixes = new Map();
    return items.map((item, place) => {
      const prefix = shared[place].slice(0, -OVERLAP);
      if (!prefixes.has(prefix)) prefixes.set(prefix, { text: prefix, lead: prefix ? OVERLAP : 0 });
      const read = Object.values(item.extracted ?? {}).find((text) => text != null);
      const chosen = (item.asked ?? []).flatMap((asked) => asked.choices ?? []).find((choice) => choice.chosen);
      const [prompt, answer, other] = slices.slice(3 * place, 3 * place + 3);
      const first = item.asked?.[0]?.answers?.[0]?.text?.length ?? answer.length;
      return { prefix: prefixes.get(prefix), said: read ?? chosen?.text ?? null, first, prompt, answer, other };
    });
  }

  /** Return a chunk's items as they are, and by item the beginning that it shares with others. */
  async function whole(key) {
    const known = lately.find((one) => one.key === key);
    if (known) return known;
    const all = await unpacked(chunks.get(key));
    const shared = leads(all);
    const found = { key, items: all.map((item, place) => restored(item, shared[place])), shared };
    lately.unshift(found);
    lately.length = Math.min(lately.length, 4);
    return found;
  }

  /** Make a chunk ready for searches, one after the other: so few are unpacked at a time. */
  function ready(chunk) {
    chunk.ready ??= (queue = queue.then(async () => {
      chunk.texts = searchable(await unpacked(chunk));
    }));
    return chunk.ready;
  }

  const calls = {
    words({ key, code }) {
      wordLists.set(key, unpackedBytes(code, signs).then((bytes) => inRow(JSON.parse(decoder.decode(bytes)))));
    },
    add({ key, code, words }) {
      chunks.set(key, { code, words, texts: null });
    },
    prepare({ key }) {
      return ready(chunks.get(key));
    },
    /** Look for a pattern in the chunks that are here, and tell now and then what was found; in a beginning that items share it is looked for once. */
    async search({ source, flags, where, keys }, tell) {
      const mine = (searches += 1);
      const pattern = new RegExp(source, flags);
      const known = new Map();
      const inPrefix = (prefix) => {
        if (!known.has(prefix)) known.set(prefix, pattern.test(prefix.text));
        return known.get(prefix);
      };
      const has = (text) => (where !== "answer" && (inPrefix(text.prefix) || pattern.test(text.prompt)))
        || (where !== "prompt" && pattern.test(text.answer)) || (where === "" && pattern.test(text.other));
      let found = [];
      let began = performance.now();
      for (const key of keys.filter((one) => chunks.has(one))) {
        const chunk = chunks.get(key);
        if (!chunk.texts) await ready(chunk);
        if (performance.now() - began > SLICE) {
          tell(found);
          found = [];
          await new Promise((done) => setTimeout(done));
          if (mine !== searches) return [];
          began = performance.now();
        }
        found.push({ key, hits: Uint8Array.from(chunk.texts, has) });
      }
      return found;
    },
    /** Return question and answer of items in a line each: of a question its last paragraph, after any examples. */
    brief({ wanted }) {
      const line = (text) => text.slice(0, 400).replace(/\s+/g, " ").trim().slice(0, 200);
      const last = (text) => text.slice(text.trimEnd().lastIndexOf("\n\n") + 1);
      return wanted.map(({ key, place }) => {
        const text = chunks.get(key)?.texts?.[place];
        if (!text) return null;
        const said = text.said ?? text.answer.slice(0, text.first);
        return { asked: line(last(text.prompt.slice(text.prefix.lead))), said: line(said) };
      });
    },
    async item({ key, place }) {
      const { items, shared } = await whole(key);
      return { ...items[place], lead: shared[place].length };
    },
    async chunk({ key }) {
      return (await whole(key)).items;
    },
  };

  scope.onmessage = async ({ data: { id, name, argument } }) => {
    try {
      scope.postMessage({ id, value: await calls[name](argument, (part) => scope.postMessage({ id, part })) });
    } catch (error) {
      scope.postMessage({ id, error: String(error?.message ?? error) });
    }
  };
}

/** The page's side of it: which worker has which chunk, and answers by call. */
class Texts {
  static patience = 15_000; // milliseconds after which a pattern counts as one that does not end
  static most = 40_000_000; // signs of packed texts that are unpacked ahead: in memory they take six times the room

  constructor() {
    this.calls = new Map();
    this.next = 0;
    this.turn = 0;
    this.start();
  }

  start() {
    this.sent = new Map(); // by chunk: its worker
    this.told = new Set(); // which words which worker has
    this.prepared = new Map(); // by chunk: the promise of its texts
    this.workers = [];
    const many = Math.max(1, Math.min(4, navigator.hardwareConcurrency ?? 2));
    try {
      const source = new Blob(
        [`"use strict";${unpackedBytes};(${textService})(self, ${JSON.stringify(SIGNS)})`], { type: "text/javascript" });
      const address = URL.createObjectURL(source);
      while (this.workers.length < many) this.workers.push(new Worker(address));
    } catch {
      this.workers = [this.here()];
    }
    for (const worker of this.workers) {
      worker.onmessage = ({ data }) => this.answered(data);
      worker.onerror = () => this.workers.length && this.withoutWorkers();
    }
  }

  /** Return what looks like a worker, and works on the page itself. */
  here() {
    const inside = { postMessage: (data) => outside.onmessage({ data }) };
    const outside = {
      postMessage: (data) => setTimeout(() => inside.onmessage({ data })),
      terminate: () => {},
    };
    textService(inside, SIGNS);
    return outside;
  }

  /** Go on without workers, where the browser refuses them only after they were made. */
  withoutWorkers() {
    this.workers = [this.here()];
    this.workers[0].onmessage = ({ data }) => this.answered(data);
    this.sent.clear();
    this.told.clear();
    const again = [...this.calls.values()];
    this.calls.clear();
    for (const { key, name, argument, resolve, reject, told } of again) {
      if (name === "search") argument.keys.forEach((one) => this.send(one));
      if (name !== "add" && name !== "words") this.call(key, name, argument, told).then(resolve, reject);
    }
  }

  answered({ id, value, error, part }) {
    const call = this.calls.get(id);
    if (part !== undefined) return call?.told?.(part);
    this.calls.delete(id);
    if (error === undefined) call?.resolve(value);
    else call?.reject(new Error(error));
  }

  /** Give a chunk to its worker, and the words that its texts have codes for. */
  send(key) {
    if (this.sent.has(key)) return;
    const which = this.sent.size % this.workers.length;
    this.sent.set(key, which);
    const words = wordsOf.get(key);
    if (!this.told.has(`${words} ${which}`)) this.call(which, "words", { key: words, code: byId(words).textContent });
    this.told.add(`${words} ${which}`);
    this.call(which, "add", { key, code: byId(key).textContent, words });
  }

  /** Ask the worker of a chunk, which gets the chunk before its first call; a number asks that worker. `told` hears parts of the answer. */
  call(key, name, argument, told) {
    const chunk = typeof key === "string";
    if (chunk) this.send(key);
    const which = (chunk ? this.sent.get(key) : key) % this.workers.length;
    return new Promise((resolve, reject) => {
      const id = (this.next += 1);
      this.calls.set(id, { key, name, argument, resolve, reject, told });
      this.workers[which].postMessage({ id, name, argument });
    });
  }

  /** Make the texts of these chunks ready for searches, each chunk once. */
  async prepare(keys) {
    await Promise.all(keys.map((key) => {
      if (!this.prepared.has(key)) this.prepared.set(key, this.call(key, "prepare", { key }));
      return this.prepared.get(key);
    }));
  }

  /** Make the texts of chunks ready before anybody asks, a few at a time and while the page rests: what is asked for meanwhile comes soon. A later call takes its place. */
  async ahead(keys) {
    const mine = (this.turn += 1);
    const left = keys.filter((key) => !this.prepared.has(key))[Symbol.iterator]();
    const rest = () => new Promise((done) => (window.requestIdleCallback ?? setTimeout)(done));
    let signs = 0;
    const lane = async () => {
      for (const key of left) {
        await rest();
        signs += byId(key).textContent.length;
        if (mine !== this.turn || signs > Texts.most) return;
        await this.prepare([key]);
      }
    };
    await Promise.all(this.workers.flatMap(() => [lane(), lane()]));
  }

  /** Return by chunk which of its items have the pattern; `told` hears what was found so far, and in which share of the chunks. */
  async search(query, told) {
    const found = new Map();
    const add = (part) => {
      for (const { key, hits } of part) found.set(key, hits);
    };
    let late;
    let giveUp;
    const tooLong = new Promise((_, reject) => { giveUp = reject; });
    const wait = () => {
      clearTimeout(late);
      late = setTimeout(() => giveUp(new Error("it takes too long; make it simpler")), Texts.patience);
    };
    const hear = (part) => {
      add(part);
      wait();
      told(found, found.size / query.keys.length);
    };
    query.keys.forEach((key) => this.send(key));
    wait();
    try {
      const all = this.workers.map((_, which) => this.call(which, "search", query, hear).then(add));
      await Promise.race([Promise.all(all), tooLong]);
      return found;
    } catch (error) {
      if (error.message.startsWith("it takes")) this.restart();
      throw error;
    } finally {
      clearTimeout(late);
    }
  }

  restart() {
    for (const worker of this.workers) worker.terminate();
    for (const { reject } of this.calls.values()) reject(new Error("it was given up"));
    this.calls.clear();
    this.start();
  }

  /** Return question and answer in brief for each [part, item]. */
  async brief(wanted) {
    const byWorker = new Map();
    const places = wanted.map(([part, item]) => parts[part].place(item));
    await this.prepare([...new Set(places.map(([key]) => key))]);
    places.forEach(([key, place], order) => {
      const which = this.sent.get(key);
      if (!byWorker.has(which)) byWorker.set(which, []);
      byWorker.get(which).push({ key, place, order });
    });
    const found = new Array(wanted.length).fill(null);
    await Promise.all([...byWorker].map(async ([which, some]) => {
      const answers = await this.call(which, "brief", { wanted: some });
      some.forEach(({ order }, index) => { found[order] = answers[index] ?? null; });
    }));
    return found;
  }

  async item(part, item) {
    const [key, place] = parts[part].place(item);
    return this.call(key, "item", { key, place });
  }
}
