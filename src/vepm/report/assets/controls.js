const nodeByName = new Map(D.nodes.name.map((name, node) => [name, node]));
const startInput = byId("start");
const graphChoice = byId("graph-choice");
const note = byId("start-note");

function describeView() {
  const shown = cy.nodes().length;
  const edges = cy.edges().not(".off").length;
  const where = isGraphTask ? "" : shown < nodeCount ? ` around ${D.nodes.name[state.start]}` : ", the whole graph";
  note.textContent = `${shown.toLocaleString("en")} nodes${where}; ${edges.toLocaleString("en")} edges drawn.`;
}

function drawKey() {
  const names = state.colour === "outcome" ? OUTCOMES.map(([name]) => name)
    : ["label", "prediction"].includes(state.colour) ? D.classes : [];
  const colours = state.colour === "outcome" ? OUTCOMES.map(([, colour]) => colour) : D.classColours;
  const key = names.slice(0, 40).map((name, k) => make("span", { class: "key-entry" }, swatch(colours[k]), name));
  byId("key").replaceChildren(...key);
}

function pickNode(node) {
  if (isGraphTask && D.nodes.graph[node] !== state.graph) showOtherGraph(D.nodes.graph[node]);
  if (!cy.getElementById(`n${node}`).length) startFrom(node);
  state.picked = node;
  highlight(cy.getElementById(`n${node}`));
  showNode(node);
}

function pickEdge(edge) {
  state.picked = null;
  highlight(cy.getElementById(`e${edge}`));
  showEdge(edge);
}

function pickNothing() {
  state.picked = null;
  highlight(null);
  if (isGraphTask) showGraph(); else showHint();
}

function startFrom(node) {
  state.start = node;
  startInput.value = D.nodes.name[node];
  redraw();
  describeView();
}

function showOtherGraph(graph) {
  state.graph = graph;
  graphChoice.value = String(graph);
  redraw();
  pickNothing();
  describeView();
}

function filterBy(k) {
  if (k === null) state.only.clear();
  else if (state.only.has(k)) state.only.delete(k);
  else state.only.add(k);
  if (state.only.size === D.communities.length) state.only.clear();
  byId("chips").querySelectorAll("button").forEach((chip) => {
    const own = chip.dataset.community;
    const on = own === "all" ? !state.only.size : state.only.has(Number(own));
    chip.setAttribute("aria-pressed", String(on));
  });
  restyle();
  filterView();
  describeView();
}

function buildChips() {
  const all = make("button", { type: "button", "data-community": "all", "aria-pressed": "true", onclick: () => filterBy(null) }, "All communities");
  byId("chips").append(all, ...D.communities.map((name, k) =>
    make("button", { type: "button", "data-community": k, "aria-pressed": "false", title: D.nicknames[k], onclick: () => filterBy(k) }, swatch(D.colours[k]), name, nickname(k))));
}

function buildNodeControls() {
  byId("node-names").append(...D.nodes.name.map((name) => make("option", { value: name })));
  startInput.value = D.nodes.name[state.start];
  startInput.addEventListener("change", () => {
    const node = nodeByName.get(startInput.value.trim());
    if (node === undefined) { note.textContent = `No node of this page is called “${startInput.value}”.`; return; }
    startFrom(node);
    pickNode(node);
  });
  const sizes = [50, 120, 250, 500].filter((size) => size < nodeCount);
  const options = sizes.map((size) => make("option", { value: size }, String(size)));
  options.push(make("option", { value: nodeCount }, `all ${nodeCount.toLocaleString("en")}`));
  byId("size").append(...options);
  state.size = nodeCount <= 350 ? nodeCount : 120;
  byId("size").value = String(state.size);
  byId("size").addEventListener("change", (event) => {
    state.size = Number(event.target.value);
    redraw();
    describeView();
    if (state.picked !== null) pickNode(state.picked);
  });
}

function buildGraphControls() {
  const { name, label, split } = D.items;
  graphChoice.append(...leastSure.map((g) => {
    const sure = D.items.probabilities ? ` · ${Math.round(confidence(g))} %` : "";
    const wrong = isWrong(g) ? " · wrong" : "";
    return make("option", { value: g }, `${name[g]}${label ? ` · ${className(label[g])}` : ""} · ${SPLIT_NAMES[split[g]]}${sure}${wrong}`);
  }));
  graphChoice.value = String(state.graph);
  graphChoice.addEventListener("change", () => showOtherGraph(Number(graphChoice.value)));
  const step = (by) => () => showOtherGraph(leastSure.at((leastSure.indexOf(state.graph) + by) % leastSure.length));
  byId("previous").addEventListener("click", step(-1));
  byId("next").addEventListener("click", step(1));
}

function buildCommonControls() {
  byId("colour").append(...colourModes.map(([value, words]) => make("option", { value }, words)));
  byId("colour").value = state.colour;
  byId("colour").addEventListener("change", (event) => {
    state.colour = event.target.value;
    restyle();
    drawKey();
  });
  byId("threshold").addEventListener("input", (event) => {
    state.threshold = Number(event.target.value);
    byId("threshold-value").textContent = state.threshold ? `${state.threshold} %` : "any";
    filterView();
    describeView();
  });
  const zoom = (factor) => () =>
    cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  byId("zoom-in").addEventListener("click", zoom(1.3));
  byId("zoom-out").addEventListener("click", zoom(1 / 1.3));
  byId("fit").addEventListener("click", () => cy.fit(undefined, 24));
  document.querySelectorAll("[data-place]").forEach((button) => {
    if (D.nodes.image) button.prepend(picture(Number(button.dataset.place)));
    button.addEventListener("click", () => {
      pickNode(Number(button.dataset.place));
      byId("graph").scrollIntoView();
    });
  });
}

/** From the picked node to the nearest one within 45 degrees of an arrow's direction. */
function step(dx, dy) {
  const from = cy.getElementById(`n${state.picked}`);
  if (!from.length) { pickNode(cy.nodes()[0].data("node")); return; }
  const at = from.position();
  let best = null;
  cy.nodes().not(from).not(".off").forEach((other) => {
    const p = other.position();
    const along = (p.x - at.x) * dx + (p.y - at.y) * dy;
    const across = Math.abs((p.x - at.x) * dy - (p.y - at.y) * dx);
    if (along <= 0 || across > along) return;
    const distance = along + across;
    if (!best || distance < best.distance) best = { distance, other };
  });
  if (best) pickNode(best.other.data("node"));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function listenToCanvas() {
  const canvas = byId("canvas");
  const tip = byId("tip");
  cy.on("tap", "node", (event) => pickNode(event.target.data("node")));
  cy.on("tap", "edge", (event) => pickEdge(event.target.data("edge")));
  cy.on("tap", (event) => { if (event.target === cy) pickNothing(); });
  cy.on("mouseover", "node, edge", ({ target, renderedPosition }) => {
    const words = target.isNode() ? D.nodes.name[target.data("node")] : splitInWords(target.data("edge"));
    tip.textContent = words;
    tip.style.left = `${renderedPosition.x + 12}px`;
    tip.style.top = `${renderedPosition.y + 12}px`;
    tip.hidden = false;
  });
  cy.on("mouseout viewport", () => { tip.hidden = true; });
  // The wheel scrolls the page until the picture has been touched.
  canvas.addEventListener("pointerdown", () => cy.userZoomingEnabled(true));
  canvas.addEventListener("pointerleave", () => cy.userZoomingEnabled(false));
  canvas.addEventListener("keydown", (event) => {
    if (ARROWS[event.key]) step(...ARROWS[event.key]);
    else if (event.key === "+" || event.key === "=") byId("zoom-in").click();
    else if (event.key === "-") byId("zoom-out").click();
    else if (event.key === "Escape") pickNothing();
    else return;
    event.preventDefault();
  });
}

buildChips();
buildCommonControls();
buildFinder();
buildPredictions();
watchPanel();
if (isGraphTask) buildGraphControls(); else buildNodeControls();
drawKey();
redraw();
describeView();
listenToCanvas();
if (isGraphTask) showGraph(); else pickNode(state.start);
themeListeners.push(restyle, drawParts);
document.querySelectorAll("[data-image]").forEach((canvas) => paint(canvas, canvas.dataset.image));
window.addEventListener("resize", () => cy.resize());
window.vepmReport = { cy, data: D, state, pickNode, pickEdge };
performance.mark("vepm-ready");
