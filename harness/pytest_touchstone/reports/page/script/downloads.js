/* Downloads of the items shown. */

function columnsOf(part, item) {
  const fields = Object.keys(part.columns.fields ?? {});
  return {
    benchmark: part.benchmark.name, checkpoint: part.candidate.shown, example: part.columns.example[item],
    status: part.status(item), right: part.right(item), group: part.group(item), error: part.error(item),
    ...Object.fromEntries([...part.benchmark.metrics, ...MEASURES].map((name) => [name, part.measure(name, item)])),
    ...Object.fromEntries(fields.map((name) => [`field.${name}`, part.field(name, item)])),
  };
}

/** Return part and item of every row left, with all of its runs, those of B after those of A. */
function* itemsShown() {
  for (const row of left) {
    for (const member of rows.members(row)) yield [parts[rows.part[member]], rows.item[member]];
    const { other, otherItem } = rows.at(row);
    if (other) yield [other, otherItem];
  }
}

/** Return a value as a cell of CSV; a text that a spreadsheet would take for a formula gets a quote in front. */
function csvCell(value) {
  if (typeof value !== "string") return value === null || value === undefined ? "" : String(value);
  const safe = /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function keepCsv() {
  const all = [...itemsShown()].map(([part, item]) => columnsOf(part, item));
  const names = [...new Set(all.flatMap((one) => Object.keys(one)))];
  const lines = [names.map(csvCell), ...all.map((one) => names.map((name) => csvCell(one[name])))];
  keep("items.csv", "text/csv", [lines.map((line) => `${line.join(",")}\n`).join("")]);
}

/** Keep the items with their texts, in the order shown; each chunk of texts is unpacked once. */
async function keepJsonl() {
  const button = byId("keep-jsonl");
  button.disabled = true;
  const wanted = [...itemsShown()];
  const byChunk = Map.groupBy(wanted.keys(), (line) => wanted[line][0].place(wanted[line][1])[0]);
  const lines = new Array(wanted.length);
  for (const [key, some] of byChunk) {
    const items = await texts.call(key, "chunk", { key });
    for (const line of some) {
      const [part, item] = wanted[line];
      lines[line] = `${JSON.stringify({ ...columnsOf(part, item), ...items[part.place(item)[1]] })}\n`;
    }
  }
  button.disabled = false;
  keep("items.jsonl", "application/x-ndjson", lines);
}
