const ROWS_AT_ONCE = 20;

/**
 * A table that can be searched and sorted.
 * Columns have a `title`, a `value` of a row to sort and search by, and perhaps a `cell` to show.
 */
function buildTable(root, columns, rows, { pick = null, order = 0, descending = false } = {}) {
  const state = { words: "", order, descending, shown: ROWS_AT_ONCE };
  const search = make("input", { type: "search", class: "search", placeholder: "Search", "aria-label": "Search the table" });
  const note = make("p", { class: "note", role: "status" });
  const kind = columns.map(({ value }) => (rows.length && typeof value(rows[0]) === "number" ? "count" : "text"));
  const heads = columns.map(({ title }, c) => make("th", { scope: "col", class: kind[c] },
    make("button", { type: "button", class: "sort", onclick: () => sortBy(c) }, title)));
  const body = make("tbody");
  const more = make("button", { type: "button", onclick: () => { state.shown += 10 * ROWS_AT_ONCE; draw(); } }, "Show more");
  const text = rows.map((row) => columns.map(({ value }) => value(row)).join("\u0000").toLowerCase());
  search.addEventListener("input", () => { state.words = search.value.trim().toLowerCase(); state.shown = ROWS_AT_ONCE; draw(); });

  function sortBy(column) {
    state.descending = state.order === column && !state.descending;
    state.order = column;
    draw();
  }

  function found() {
    const key = columns[state.order].value;
    const sign = state.descending ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true }));
    return rows
      .filter((row, place) => !state.words || text[place].includes(state.words))
      .sort((a, b) => sign * compare(key(a), key(b)));
  }

  function draw() {
    const kept = found();
    heads.forEach((head, c) => head.setAttribute("aria-sort",
      c !== state.order ? "none" : state.descending ? "descending" : "ascending"));
    body.replaceChildren(...kept.slice(0, state.shown).map((row) => {
      const cells = columns.map(({ value, cell }, c) => make("td", { class: kind[c] }, cell ? cell(row) : String(value(row))));
      return pick ? make("tr", { class: "pickable", onclick: () => pick(row) }, ...cells) : make("tr", {}, ...cells);
    }));
    note.textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    more.hidden = kept.length <= state.shown;
  }

  root.append(make("div", { class: "toolbar" }, search, note),
    make("div", { class: "table-scroll", tabindex: "0" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)), more);
  draw();
}
