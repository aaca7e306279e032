const panel = byId("panel");

function bar(label, value, width, colour, extra = {}) {
  return make("div", { class: "row", ...extra },
    make("span", { class: "row-label" }, swatch(colour), label),
    make("span", { class: "track" },
      make("span", { class: "fill", style: { width: `${Math.max(0, Math.min(100, width))}%`, background: colour } })),
    make("span", { class: "row-value" }, value));
}

const block = (title, ...children) =>
  make("section", { class: "block" }, make("h4", {}, title), ...children);

function verdict(item) {
  const { label, prediction, split } = D.items;
  const words = make("p", { class: "verdict" });
  if (prediction) {
    const known = label && label[item] >= 0;
    const right = known && label[item] === prediction[item];
    words.append(make("b", {}, className(prediction[item])));
    if (known) {
      words.append(make("span", { class: right ? "right" : "wrong" },
        right ? " ✓ right" : ` ✗ is ${className(label[item])}`));
    }
    words.append(make("span", { class: "note" }, ` · ${SPLIT_NAMES[split[item]]}`));
  } else if (label) {
    words.append("Label: ", make("b", {}, className(label[item])));
  }
  return words;
}

function probabilities(item) {
  if (!D.items.probabilities) return null;
  return block("Probabilities", ...D.items.probabilities[item].map(([c, percent]) =>
    bar(className(c), `${percent} %`, percent, D.classColours[c])));
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

function support(item) {
  if (!D.items.support) return null;
  const label = D.items.prediction[item];
  const rows = D.items.support[item].map((row, k) => [k, ...row]).sort((a, b) => b[1] - a[1]);
  const strongest = Math.max(...rows.map(([, value]) => Math.abs(value)), 0.05);
  return block(`Evidence for “${className(label)}” by community`,
    ...rows.map(([k, value, percent, other]) => {
      const row = bar(D.communities[k], signed(value), (100 * Math.abs(value)) / strongest, D.colours[k],
        { class: value < 0 ? "row against" : "row", "data-support": k, "data-value": value, title: `without it ${percent} %` });
      if (other !== label) {
        row.append(make("span", { class: "dissent" }, `without it: ${className(other)} (${className(label)} ${percent} %)`));
      }
      return row;
    }),
    make("p", { class: "note" }, "How far the log-odds of this class fall when the embeddings of one community are replaced by their mean over all nodes; +1 is a factor of 2.7 in the odds. Pale bars are evidence against the class."));
}

function memberships(node) {
  const z = D.nodes.z[node];
  const strongest = Math.max(...z, 1e-12);
  const shown = (value) => (value < 0.001 ? "< 0.001" : String(Number(value.toPrecision(2))));
  const row = (c) => bar(`z${c}`, shown(z[c]), (100 * z[c]) / strongest, D.colours[D.partOf[c]],
    { "data-affiliation": c, "data-value": z[c] });
  const order = z.map((_, c) => c).sort((a, b) => z[b] - z[a]);
  const list = block("Memberships Z (posterior mean)", ...order.slice(0, 8).map(row));
  if (order.length > 8) {
    list.append(make("details", {}, make("summary", {}, `all ${order.length}`),
      ...order.slice(8).map(row)));
  }
  return list;
}

function parts(node) {
  const order = D.nodes.part[node].map((_, k) => k).sort((a, b) => D.nodes.part[node][b] - D.nodes.part[node][a]);
  const shown = order.filter((k, place) => D.nodes.part[node][k] > 0 || place === 0);
  return block("Share of expected links", ...shown.map((k) =>
    bar(D.communities[k], `${D.nodes.part[node][k]} %`, D.nodes.part[node][k], D.colours[k], { "data-community": k })));
}

function neighbourList(node) {
  const near = neighbours[node];
  const chips = near.slice(0, 30).map(({ node: other, edge }) =>
    make("button", { type: "button", class: "name", onclick: () => pickNode(other),
      title: splitInWords(edge) }, swatch(D.colours[mainOfEdge(edge)]), D.nodes.name[other]));
  return block(`Neighbours (${near.length})`, make("p", { class: "names" }, ...chips),
    near.length > 30 ? make("p", { class: "note" }, `and ${near.length - 30} more`) : null);
}

const splitInWords = (edge) => D.edges.share[edge]
  .map((share, k) => [share, k]).filter(([share]) => share >= 4).sort((a, b) => b[0] - a[0])
  .map(([share, k]) => `${D.communities[k]} ${share} %`).join(", ");

function showNode(node) {
  const isItem = !isGraphTask;
  panel.replaceChildren(...[
    make("p", { class: "eyebrow" }, "Node"),
    make("h3", { id: "panel-title", "data-node": node }, D.nodes.name[node]),
    picture(node),
    isItem ? verdict(node) : null,
    parts(node),
    isItem ? probabilities(node) : null,
    isItem ? support(node) : null,
    memberships(node),
    neighbourList(node),
    isGraphTask ? make("button", { type: "button", onclick: () => pickNothing() }, "Back to the graph") : null,
  ].filter(Boolean));
}

/** Which affiliations of its two ends an edge comes from, and how likely they made it. */
function reasons(edge) {
  const parts = rateParts(edge);
  const total = rates[edge] || 1;
  const [one, other] = [D.edges.source[edge], D.edges.target[edge]].map((n) => D.nodes.z[n]);
  const order = parts.map((_, c) => c).sort((a, b) => parts[b] - parts[a]).slice(0, 4);
  const short = (value) => Number(value.toPrecision(2)).toLocaleString("en");
  const likely = probability(edge);
  const times = D.density ? `, ${short(likely / D.density)} times that of two random nodes (${short(100 * D.density)} %)` : "";
  return [
    block("Why this edge exists",
      ...order.filter((c) => parts[c] > 0).map((c) => bar(`z${c} (${short(one[c])} × ${short(other[c])})`,
        `${Math.round((100 * parts[c]) / total)} %`, (100 * parts[c]) / total, D.colours[D.partOf[c]], { "data-reason": c })),
      make("p", { class: "note" }, "Affiliations that both ends share, and their part of the edge’s rate.")),
    block("How surprising it is",
      make("p", { id: "surprise", "data-probability": likely },
        `The model gives this edge a probability of ${short(100 * likely)} %${times}.`),
      make("p", { class: "note" }, `${Math.round(surprise(edge))} % of the edges on this page are more probable.`)),
  ];
}

function showEdge(edge) {
  const ends = [D.edges.source[edge], D.edges.target[edge]];
  const shares = D.edges.share[edge];
  const order = shares.map((_, k) => k).sort((a, b) => shares[b] - shares[a]);
  panel.replaceChildren(
    make("p", { class: "eyebrow" }, "Edge"),
    make("h3", { id: "panel-title", "data-edge": edge }, ends.map((n) => D.nodes.name[n]).join(" – ")),
    ...reasons(edge),
    block("Its split among communities", ...order.map((k) =>
      bar(D.communities[k], `${shares[k]} %`, shares[k], D.colours[k], { "data-community": k }))),
    block("Ends", make("p", { class: "names" }, ...ends.map((node) =>
      make("button", { type: "button", class: "name", onclick: () => pickNode(node) }, D.nodes.name[node])))));
}

function showGraph() {
  const item = state.graph;
  panel.replaceChildren(...[
    make("p", { class: "eyebrow" }, "Graph"),
    make("h3", { id: "panel-title", "data-graph": item }, D.items.name[item]),
    verdict(item),
    make("p", { class: "note" }, `${cy.nodes().length} nodes, ${cy.edges().length} edges. Click a node for its memberships.`),
    probabilities(item),
    support(item),
  ].filter(Boolean));
}

function showHint() {
  panel.replaceChildren(
    make("p", { class: "eyebrow" }, "Details"),
    make("p", {}, "Click a node to see its memberships, its neighbours and the evidence for its label."));
}

/** A button that says there is more of the panel below, while there is. */
function watchPanel() {
  const more = byId("more");
  const check = () => { more.hidden = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 12; };
  panel.addEventListener("scroll", check);
  more.addEventListener("click", () => panel.scrollBy({ top: 0.8 * panel.clientHeight, behavior: "smooth" }));
  new MutationObserver(() => { panel.scrollTop = 0; check(); }).observe(panel, { childList: true });
  new ResizeObserver(check).observe(panel);
}
