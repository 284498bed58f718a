/* The texts of all items: unpacked, searched and shown in brief, in workers where the browser allows them. */

/** The work itself. It runs in a worker from its own source, so it uses nothing from outside but its arguments and `unpackedBytes`. */
function textService(scope, signs) {
  const OVERLAP = 80; // characters of a shared beginning that are searched with what follows it
  const SLICE = 40; // milliseconds of a search after which other calls have their turn
  const BETWEEN = "\u0000"; // stands between the items of a chunk
  const FEW = 4; // of so many items of a chunk, one is read alone where it may have what is looked for; of more, all are
  const chunks = new Map();
  const lately = []; // the chunks whose items are kept as they are
  let searches = 0; // those that were begun: the latest one stops those before it
  let aheads = 0; // likewise, of chunks that are unpacked ahead

  const decoder = new TextDecoder();

  /** Let calls that have come meanwhile have their turn; a timer would wait for four milliseconds. */
  const turns = new MessageChannel();
  const waiting = [];
  turns.port1.onmessage = () => waiting.shift()();
  const others = () => new Promise((done) => {
    waiting.push(done);
    turns.port2.postMessage(null);
  });

  /** Return a chunk's items as one text of JSON, each with `BETWEEN` before it, and by item the beginning of its question that it shares with others. */
  async function unpacked({ code }) {
    const text = decoder.decode(await unpackedBytes(code, signs));
    const start = text.indexOf(BETWEEN);
    const leads = JSON.parse(text.slice(0, start)).flatMap(([lead, many]) => new Array(many).fill(lead));
    return { text, start, leads };
  }

  /** Return the items of a chunk, of their first questions what follows the beginnings that they share. */
  const read = ({ text, start }) => text.slice(start + 1).split(BETWEEN).map((one) => JSON.parse(one));

  const question = (item) => item?.asked?.[0]?.question ?? "";

  /** Return an item with its whole first question. */
  function restored(item, lead) {
    if (!lead) return item;
    const [first, ...more] = item.asked;
    return { ...item, asked: [{ ...first, question: lead + first.question }, ...more] };
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
      for (const said of asked.answers ?? []) answer.push(said.text, said.remark, said.reasoning);
    }
    for (const program of item.programs ?? []) answer.push(program.text, program.outcome, program.detail);
    const other = [item.message, item.gold, ...Object.values(item.extracted ?? {}), ...(item.notes ?? [])];
    other.push(...Object.values(item.row ?? {}).map(flat));
    return [prompt, answer, other].map((texts) => texts.filter(Boolean).join("\n"));
  }

  /** Return the texts of items, each after its beginning, as slices of one string, which takes least memory. */
  function searchable(items, leads) {
    const each = items.flatMap((item, place) => pieces(item, leads[place].slice(-OVERLAP)));
    const whole = each.join(BETWEEN);
    let start = 0;
    const slices = each.map(({ length }) => whole.slice(start, (start += length + 1) - 1));
    return items.map((item, place) => {
      const said = Object.values(item.extracted ?? {}).find((text) => text != null);
      const chosen = (item.asked ?? []).flatMap((asked) => asked.choices ?? []).find((choice) => choice.chosen);
      const [prompt, answer, other] = slices.slice(3 * place, 3 * place + 3);
      const first = item.asked?.[0]?.answers?.[0]?.text?.length ?? answer.length;
      return { lead: leads[place], said: said ?? chosen?.text ?? null, first, prompt, answer, other };
    });
  }

  /** Return a chunk's items as they are, and by item the beginning that it shares with others. */
  async function whole(key) {
    const known = lately.find((one) => one.key === key);
    if (known) return known;
    const chunk = await unpacked(chunks.get(key));
    const { leads } = chunk;
    const found = { key, items: read(chunk).map((item, place) => restored(item, leads[place])), leads };
    lately.unshift(found);
    lately.length = Math.min(lately.length, 4);
    return found;
  }

  /** Unpack a chunk. That is enough to search it for a text, and to show items of it in brief. */
  function ready(chunk) {
    chunk.ready ??= unpacked(chunk).then((found) => {
      chunk.whole = found;
    });
    return chunk.ready;
  }

  /** Return the texts of all items of a chunk that is unpacked; they take the place of its JSON. */
  function textsOf(chunk) {
    if (!chunk.texts) {
      chunk.texts = searchable(read(chunk.whole), chunk.whole.leads);
      chunk.whole = null;
    }
    return chunk.texts;
  }

  /** Return the texts of one item of a chunk that is unpacked. */
  function textOf(chunk, place, json = chunk.whole?.text.split(BETWEEN)[place + 1]) {
    return chunk.texts?.[place] ?? searchable([JSON.parse(json)], [chunk.whole.leads[place]])[0];
  }

  /** Return where in a chunk's JSON a text may be, as [place of the item, its JSON]; null where it may be in too many. */
  function candidatesIn({ text, start, leads }, written) {
    const found = [];
    let [place, from, end] = [-1, 0, start];
    written.lastIndex = end;
    for (let hit = written.exec(text); hit; hit = written.exec(text)) {
      for (; end <= hit.index; place += 1) {
        from = end + 1;
        end = text.indexOf(BETWEEN, from);
        if (end < 0) end = text.length;
      }
      found.push([place, text.slice(from, end)]);
      if (FEW * found.length > leads.length) return null;
      written.lastIndex = end;
    }
    return found;
  }

  /** Return by item of a chunk whether `has` is true of its texts. A text whose form as JSON is known is looked for in that first: most items need not be read then. */
  function hitsIn(chunk, has, written, inLead) {
    const some = written && chunk.whole && candidatesIn(chunk.whole, written);
    if (!some) return Uint8Array.from(textsOf(chunk), has);
    const hits = Uint8Array.from(chunk.whole.leads, inLead);
    for (const [place, json] of some) hits[place] ||= has(textOf(chunk, place, json));
    return hits;
  }

  const calls = {
    add({ key, code }) {
      chunks.set(key, { code, whole: null, texts: null });
    },
    prepare({ key }) {
      return ready(chunks.get(key));
    },
    /** Unpack these chunks, then make texts of them, one after the other and while nobody asks for anything. A later call takes the place of this one. */
    async ahead({ keys }) {
      const mine = (aheads += 1);
      for (const step of [ready, async (chunk) => { await ready(chunk); textsOf(chunk); }]) {
        for (const key of keys) {
          if (mine !== aheads) return;
          await step(chunks.get(key));
          await others();
        }
      }
    },
    /** Look for a pattern in the chunks that are here, and tell now and then what was found; in a beginning that items share it is looked for once. `json` is the pattern of a text as JSON has it, null where that is not known. */
    async search({ source, flags, json, where, keys }, tell) {
      const mine = (searches += 1);
      const pattern = new RegExp(source, flags);
      const written = json === null ? null : new RegExp(json, `${flags}g`);
      const known = new Map();
      const inLead = (lead) => {
        if (!known.has(lead)) known.set(lead, where !== "answer" && pattern.test(lead));
        return known.get(lead);
      };
      const has = (text) => inLead(text.lead) || (where !== "answer" && pattern.test(text.prompt))
        || (where !== "prompt" && pattern.test(text.answer)) || (where === "" && pattern.test(text.other));
      let found = [];
      let began = performance.now();
      for (const key of keys.filter((one) => chunks.has(one))) {
        const chunk = chunks.get(key);
        await ready(chunk);
        if (performance.now() - began > SLICE) {
          tell(found);
          found = [];
          await others();
          if (mine !== searches) return [];
          began = performance.now();
        }
        found.push({ key, hits: hitsIn(chunk, has, written, inLead) });
      }
      return found;
    },
    /** Return question and answer of items in a line each: of a question its last paragraph, after any examples. */
    brief({ wanted }) {
      const line = (text) => text.slice(0, 400).replace(/\s+/g, " ").trim().slice(0, 200);
      const last = (text) => text.slice(text.trimEnd().lastIndexOf("\n\n") + 1);
      return wanted.map(({ key, place }) => {
        const chunk = chunks.get(key);
        if (!chunk?.whole && !chunk?.texts) return null;
        const text = textOf(chunk, place);
        const said = text.said ?? text.answer.slice(0, text.first);
        return { asked: line(last(text.prompt.slice(Math.min(OVERLAP, text.lead.length)))), said: line(said) };
      });
    },
    async item({ key, place }) {
      const { items, leads } = await whole(key);
      return { ...items[place], lead: leads[place].length };
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
    const again = [...this.calls.values()];
    this.calls.clear();
    for (const { key, name, argument, resolve, reject, told } of again) {
      argument.keys?.forEach((one) => this.send(one));
      if (name !== "add") this.call(key, name, argument, told).then(resolve, reject);
    }
  }

  answered({ id, value, error, part }) {
    const call = this.calls.get(id);
    if (part !== undefined) return call?.told?.(part);
    this.calls.delete(id);
    if (error === undefined) call?.resolve(value);
    else call?.reject(new Error(error));
  }

  /** Give a chunk to its worker. */
  send(key) {
    if (this.sent.has(key)) return;
    const which = this.sent.size % this.workers.length;
    this.sent.set(key, which);
    this.call(which, "add", { key, code: byId(key).textContent });
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

  /** Unpack chunks before anybody asks for them, all workers at once, or all but one while the page itself is at work. A later call takes the place of this one. */
  async ahead(keys, { busy = false } = {}) {
    let signs = 0;
    const some = keys.filter((key) => (signs += byId(key).textContent.length) <= Texts.most);
    some.forEach((key) => this.send(key));
    const free = busy ? Math.max(1, this.workers.length - 1) : this.workers.length;
    const own = (which) => some.filter((key) => this.sent.get(key) === which);
    await Promise.all(this.workers.slice(0, free).map((_, which) => this.call(which, "ahead", { keys: own(which) })));
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
